"""In which order, and how often, the parts of a statement are evaluated: each leaves a number in a list.

Every statement runs by itself, on a side of a branch and in a loop; captured and scripted, it gives what Python gives.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from graphwright import GuardError, ScriptError, script, trace

# `t` notes a number and gives a value back; x and y are tensors, l is a list, d a dict, log what was noted.
STATEMENTS = r"""
t(log,1,x)[t(log,2,0)] += t(log,3,2)
t(log,1,x)[t(log,2,0)] = t(log,3,2)
t(log,1,x)[t(log,2,0):t(log,3,2)] = t(log,4,2)
t(log,1,x)[t(log,2,0):t(log,3,2)] += t(log,4,x[0])
t(log,1,x)[t(log,2,0), t(log,3,1)] *= t(log,4,y[0])
t(log,1,l)[t(log,2,0)] += t(log,3,2)
t(log,1,l)[t(log,2,0)] = t(log,3,2)
t(log,1,d)[t(log,2,'a')] += t(log,3,2)
t(log,1,d)[t(log,2,'b')] = t(log,3,2)
a = t(log,1,1) < t(log,2,2) < t(log,3,3); log.append(int(a))
a = t(log,1,1) < t(log,2,0) < t(log,3,3); log.append(int(a))
a = t(log,1,1) < t(log,2,l[0]) < t(log,3,3); log.append(int(a))
a = t(log,1,x.shape[0]) < t(log,2,l[0]) < t(log,3,3); log.append(int(a))
a = bool(t(log,1,x.sum()) < t(log,2,y.sum())) and t(log,3,l[0]) > 0; log.append(int(a))
a = t(log,1,l[0] > 0) and t(log,2,l[1] > 0) or t(log,3,l[2] > 0); log.append(int(a))
a = t(log,1,l[0] > 5) and t(log,2,l[1] > 0) or t(log,3,l[2] > 0); log.append(int(a))
a = t(log,1,1) if t(log,2,l[0] > 0) else t(log,3,3); log.append(a)
a = t(log,1,x) if t(log,2,x.sum() > 0) else t(log,3,y); x = x + a
a = t(log,1,x) if t(log,2,x.sum() < 0) else t(log,3,x * 2); x = x + a
a, b = t(log,1,1), t(log,2,2); log.append(a + b)
t(log,1,l)[0], t(log,2,l)[1] = t(log,3,5), t(log,4,6)
l[t(log,1,0)], l[t(log,2,1)] = t(log,3,5), t(log,4,6)
l[0], l[1] = l[1], l[0]
l[0], l[l[0]] = 1, 7
i = 0; i, l[i] = 1, 9
x[0], x[1] = x[1], x[0]
x[0], x[1] = x[1].clone(), x[0].clone()
a = b = t(log,1,l[0]); log.append(a + b)
x[0] = x[1] = t(log,1,y)
t(log,1,x)[0] = t(log,2,x)[1] = t(log,3,y)
x = torch.add(t(log,1,x), t(log,2,y), alpha=t(log,3,2))
x = torch.add(input=t(log,1,x), alpha=t(log,2,2), other=t(log,3,y))
x = t(log,1,x).add(t(log,2,y)).mul(t(log,3,2))
x = two(t(log,1,x), b=t(log,2,y), a=t(log,3,1))
x = two(b=t(log,2,y), x=t(log,1,x))
x = t(log,1,x) + t(log,2,y) * t(log,3,2)
x = (t(log,1,x) - t(log,2,y)) / t(log,3,2)
x = t(log,1,x)[t(log,2,0)] + t(log,3,x)[t(log,4,1)]
x = t(log,1,x) @ t(log,2,x)
d = {t(log,1,'a'): t(log,2,1), t(log,3,'b'): t(log,4,2)}; log.append(d['a'] + d['b'])
l = [t(log,1,1), t(log,2,2)]; log.append(l[1])
l = [t(log,k,k) for k in t(log,9,l)]
l = [t(log,k,k) for k in t(log,9,l) if t(log,k,k) > 1]
l = [t(log,k,k) + t(log,m,m) for k in t(log,9,[1,2]) for m in t(log,8,[3,4])]
d = {t(log,k,k): t(log,k+1,k) for k in t(log,9,l)}; log.append(len(d))
log.append(sum([t(log,k,k) for k in l]))
log.append(max(t(log,k,k) for k in l))
log.append(int(any([t(log,k,k > 1) for k in l])))
log.append(int(any(t(log,k,k > 1) for k in l)))
log.append(int(all(t(log,k,k > 1) for k in l)))
for k in t(log,1,l): log.append(k + 10)
for k in range(t(log,1,0), t(log,2,3)): log.append(k + 10)
for k, m in enumerate(t(log,1,l)): log.append(k + m)
for k, m in zip(t(log,1,l), t(log,2,l)): log.append(k + m)
for r in t(log,1,x): log.append(3)
while t(log,1,len(log)) < 5: log.append(7)
while t(log,1,len(log)) < 5 and t(log,2,True): log.append(7)
i = 0\nwhile i < 3:\n    i += t(log,i,1)\n    if t(log,5,i) == 2: break
i = 0\nwhile i < 3:\n    i += t(log,i,1)\n    if t(log,5,i) == 2: continue\n    log.append(8)
i = 0\nwhile i < 3:\n    i += t(log,i,1)\nelse:\n    log.append(8)
assert t(log,1,l[0]) > 0, t(log,2,'no')
if t(log,1,l[0]) > 0: log.append(4)\nelif t(log,2,l[1]) > 0: log.append(5)\nelse: log.append(6)
if t(log,1,l[0]) > 3: log.append(4)\nelif t(log,2,l[1]) > 0: log.append(5)\nelse: log.append(6)
if not t(log,1,l[0] > 3): log.append(4)
if t(log,1,x.sum()) > 0 and t(log,2,y.sum()) > 0: x = x + 1
if t(log,1,x.sum()) > 0 or t(log,2,y.sum()) > 0: x = x + 1
if (n := t(log,1,l[0])) > 0: log.append(n)
log.append(t(log, (n := 4), n))
l.append(t(log,1,4)); l.extend(t(log,2,l))
l += t(log,1,[4, 5])
l = t(log,1,l) + t(log,2,[4])
l = t(log,1,l) * t(log,2,2)
l.insert(t(log,1,0), t(log,2,7))
log.append(l.pop(t(log,1,0)))
log.append(t(log,1,l).pop())
l.sort(key=lambda v: t(log,v,-v))
l = sorted(t(log,9,l), key=lambda v: t(log,v,-v))
log.append(max(l, key=lambda v: t(log,v,-v)))
l.reverse(); log.append(l.index(t(log,1,l[0])))
del l[t(log,1,0)]
log.append(t(log,1,l)[t(log,2,-1)])
log.append(len(t(log,1,l)[t(log,2,0):t(log,3,2):t(log,4,1)]))
log.append(int(t(log,1,2) in t(log,2,l)))
log.append(int(t(log,1,2) not in t(log,2,l)))
log.append(int(t(log,1,x) is t(log,2,x)))
s = f"{t(log,1,1)}-{t(log,2,2)}"; log.append(len(s))
s = t(log,1,'a') + t(log,2,'b'); log.append(len(s))
s = '%d %d' % (t(log,1,1), t(log,2,2)); log.append(len(s))
s = '{} {}'.format(t(log,1,1), t(log,2,2)); log.append(len(s))
log.append(-t(log,1,l[0]))
log.append(abs(t(log,1,-1)) + int(t(log,2,1.5)))
log.append(min(t(log,1,l[0]), t(log,2,l[1]), t(log,3,0)))
log.append(divmod(t(log,1,7), t(log,2,2))[0])
x = torch.cat([t(log,1,x), t(log,2,x)], dim=t(log,3,0))
x = torch.stack((t(log,1,y), t(log,2,y)))
x = torch.where(t(log,1,x > 0), t(log,2,x), t(log,3,y))
x = torch.zeros(t(log,1,2), t(log,2,3))
x = x.view(*t(log,1,[-1]))
x = x.view(t(log,1,-1), *t(log,2,[1]))
def g(v=t(log,1,3)):\n    return t(log,v,v)\nlog.append(g()); log.append(g())
g = lambda v: t(log,v,v)\nlog.append(g(1) + g(2))
try:\n    t(log,1,x)\n    raise ValueError(t(log,2,'a'))\nexcept ValueError:\n    t(log,3,x)\nfinally:\n    t(log,4,x)
with torch.no_grad():\n    x = t(log,1,x) * t(log,2,2)
a, *b = t(log,1,l); log.append(a + len(b))
(a, b), c = (t(log,1,1), t(log,2,2)), t(log,3,3); log.append(a + b + c)
a, b, c = t(log,1,l); log.append(a)
x.add_(t(log,1,y)).mul_(t(log,2,2))
t(log,1,x).zero_()
x += t(log,1,y); x -= t(log,2,y)
x = x + 1; x[t(log,1,0)][t(log,2,1)] = t(log,3,5)
x.data = t(log,1,y)
t(log,1,x).data = t(log,2,y)
t(log,1,x).data *= t(log,2,y)
a = {'k': [1, 2]}; t(log,1,a)[t(log,2,'k')][t(log,3,0)] += t(log,4,5); log.append(a['k'][0])
a = (t(log,1,1), t(log,2,2))[t(log,3,0)]; log.append(a)
a = [t(log,1,1), t(log,2,2)][t(log,3,0)]; log.append(a)
a = [t(log,1,1), t(log,2,2)][t(log,3,l[0])]; log.append(a)
a = {'u': t(log,1,1), 'v': t(log,2,2)}[t(log,3,'v')]; log.append(a)
l[t(log,1,0)] += l.pop()
l[0] += l.pop() + l[0]
x[0] += (x.add_(1))[1]
log.append(l[0] + l.pop(0) + l[0])
log.append(l.pop() - l.pop())
log += [l.pop(), l.pop(0)]
log.append(len(log) + 10 * len(l) + l.pop() + 100 * len(l))
two(x.add_(1), x.mul_(2))
a = x.add_(1) + x.mul_(2); x = x + a
a = x + x.add_(1); x = a
a = x[0] + x.add_(1)[0]; x = x + a
a = (x.sum() + x.add_(1).sum()) * x.mul_(2).sum(); x = x + a
a = [x, x.add_(1), x * 2]; x = a[0] + a[2]
a = float(x.sum()) + float(x.add_(1).sum()); log.append(int(a * 10))
a = x.shape[0] if l.pop() > 2 else l.pop(); log.append(a)
for k in l:\n    if k > 1:\n        l.pop()\n    log.append(k)
for k in range(len(l)):\n    l.append(k)
for k in list(l):\n    l.append(k)
i = 2\nfor i in range(i): log.append(i)\nlog.append(i)
for l[0] in range(3): log.append(l[0])
for i, l[i] in enumerate([5, 6, 7]): log.append(i)
for x[0] in [y, y + 1]: log.append(1)
d2 = {}\nfor d2['k'] in range(3): log.append(d2['k'])
with torch.no_grad() as l[0]: pass
l[0]: int = t(log,1,4)
a: int = t(log,1,4); log.append(a)
x[t(log,1,0)], a = t(log,2,y), t(log,3,1)
log.append([l.pop(), l.pop()][0])
log.append({'a': l.pop(), 'b': l.pop()}['a'])
a = l.pop() < l.pop() < l.pop(); log.append(int(a))
a = l.pop() if l else 0; log.append(a)
a = l and l.pop(); log.append(a)
a = (l.pop(), l.pop()); l.append(a[1]); log.append(a[0])
l[l.pop()-3] = l.pop()
l[l.pop()-3] += l.pop()
l[-1], l[0] = l.pop(), l.pop()
l[len(l)-1] += l.append(1) or 1
global_ = [l, l]; global_[0].append(1); global_[1] += [2]
a = l; a += [1]; log.append(len(l))
a = l; a = a + [1]; log.append(len(l))
a = x; a += 1
a = x; a = a + 1; x = x + a
a = d; a |= {'z': 1}; log.append(len(d))
d['a'] += d.pop('a')
d['a'], d['q'] = d.get('q', 4), d['a']
d.setdefault(t(log,1,'n'), t(log,2,5)); log.append(d['n'])
d.update({t(log,1,'n'): t(log,2,5)}); log.append(len(d))
for k in (t(log,m,m) for m in l): log.append(k + 10)
for k, m in zip((t(log,m,m) for m in l), (t(log,m+5,m) for m in l)): log.append(k + 10)
g = (t(log,m,m) for m in l); log.append(9); a = next(g)
g = (m + 1 for m in l); log.append(9); a = next(g); log.append(a)
fs = [lambda v=k: v for k in l]; log.append(fs[0]() + fs[1]() * 10)
fs = [lambda: k for k in l]; log.append(fs[0]() + fs[1]() * 10)
k = 1\ng = lambda v=k: v\nk = 5\nlog.append(g())
k = 1\ng = lambda: k\nk = 5\nlog.append(g())
def g(v=[]):\n    v.append(1)\n    return len(v)\nlog.append(g()); log.append(g())
def g(v, *, w=t(log,1,2)):\n    return v + w\nlog.append(g(1)); log.append(g(1, w=t(log,2,5)))
a, a = t(log,1,1), t(log,2,2); log.append(a)
a = x; x = a + 1; a += 1
a = x[0]; x[0] = 5; x = x + a
a = x[0]; a += 5
a = l[:]; a.append(1)
a = x.view(-1); a[0] = 7
a = d.keys(); d['zz'] = 1; log.append(len(a))
x = x.masked_fill(t(log,1,x > 1), t(log,2,0.))
x[t(log,1,x > 1)] = t(log,2,0.)
x[t(log,1,x > 1)] += t(log,2,1.)
""".strip().splitlines()

FORMS = {
    "alone": "BODY",
    "on a side": "if y.sum() < 0:\n    log.append(99)\nelse:\n    BODY",
    "in a loop": "for q in range(x.shape[0]):\n    BODY",
}

HEAD = """
from typing import Dict, List
import torch

def t(log, k, v):
    log.append(k)
    return v

def two(x, b, a: int = 2):
    return x * a + b
"""

PROGRAM = """
def of_{name}(x, y):
    log: List[int] = []
    l = [1, 2, 3]
    d = {{'a': 1, 'c': 2}}
    {lines}
    return x, log, l, d
"""


def text_of(name: str, statement: str, form: str) -> str:
    lines = statement.replace("\\n", "\n") if "\\n" in statement else statement.replace("; ", "\n")
    whole = FORMS[form].replace("BODY", lines.replace("\n", "\n    " if form != "alone" else "\n"))
    return PROGRAM.format(name=name, lines=whole.replace("\n", "\n    "))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Each statement in each form, as a function of one file."""
    path: Path = tmp_path_factory.mktemp("order") / "parts_in_order.py"
    texts = [text_of(f"{i}_{k}", one, form) for i, one in enumerate(STATEMENTS) for k, form in enumerate(FORMS)]
    path.write_text(HEAD + "".join(texts))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inputs(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    if seed == 0:
        return torch.arange(9.0).view(3, 3), torch.ones(3)
    return torch.randn(3, 3, generator=generator), torch.randn(3, generator=generator)


def outcome(program: Any, seed: int) -> Any:
    """What a program gives, as plain values, or the class of the error of Python's that it raises."""
    try:
        x, *rest = program(*inputs(seed))
    except GuardError:
        raise
    except Exception as error:
        return type(error)
    return (x.tolist(), x.dtype, *rest)


@pytest.mark.parametrize("form", ["alone", *[pytest.param(form, marks=pytest.mark.slow) for form in [*FORMS][1:]]])
@pytest.mark.parametrize("number", range(len(STATEMENTS)), ids=STATEMENTS)
def test_parts_are_evaluated_as_python_does(programs: ModuleType, number: int, form: str) -> None:
    program = getattr(programs, f"of_{number}_{[*FORMS].index(form)}")
    if isinstance(outcome(program, 0), type):  # the program itself raises for what it is captured with
        return
    captured = trace(program, inputs(0))
    for seed in range(3):
        try:
            assert outcome(captured, seed) == outcome(program, seed)
        except GuardError:
            assert form == "in a loop" or seed > 0
    try:
        scripted = script(program)
    except ScriptError:
        return
    for seed in range(3):
        assert outcome(scripted, seed) == outcome(program, seed)
