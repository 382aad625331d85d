"""torch.ao's names for quantization by graphs, on `graphwright.quantization`.

Read steps.py first.

    steps.py             `prepare_fx`, `prepare_qat_fx`, `convert_fx`
    configs.py           configurations, and rules by module, class and name
    observer_choices.py  observers by name, with settings
"""
