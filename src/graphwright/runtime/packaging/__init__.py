"""A captured module as a folder: an importable Python package of source and weights.

Read folder.py first.

    folder.py         the package, written
    python_file.py    the text of its Python file, tried before it is written
    rolling.py        equal calls of the modules of a list as a loop
    classes.py        the tree of modules as classes
    equal_classes.py  classes that differ in numbers and texts alone as one
    modules.py        one module as the expression that makes it again
    tensor_values.py  a tensor as the expression that makes it again with its values
    imports.py        global names as import statements
    loading.py        what the package reads its weights with; its text becomes a file of the package
    weights.py        the tensors as a safetensors file
    whole_files.py    files that are whole or not there, with a sum of their bytes
"""
