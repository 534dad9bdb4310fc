"""Parts of modules that compiled code reads: what it gives is what ``__getattr__`` gives."""

import gc
import weakref

import pytest

import weft as torch
from weft.core import selection
from weft.native.codegen import part_reads
from weft.nn import Module, module

NAMES = ("weight", "bias", "buffer", "empty", "inner", "training", "cls_attribute", "missing",
         "_parameters", "fails", "counted", "forward")  # fmt: skip
plain_getattr = vars(Module)["__getattr__"]


class Otherwise(dict):
    """A table that has more than it holds, and less."""

    def __contains__(self, name):
        return name == "missing"

    def __missing__(self, name):
        return f"made {name}"


class Name(str):
    """A name that is another one in tables."""

    def __eq__(self, other):
        return other == "weight"

    def __hash__(self):
        return hash("weight")


def fresh(bases=(Module,), **names):
    """A new class of modules, and one of these."""

    def init(self):
        own = object.__getattribute__(self, "__dict__")
        own["_parameters"] = {"weight": torch.nn.Parameter(torch.ones(2)), "bias": None}
        own["_buffers"] = {"buffer": torch.zeros(3), "empty": None}
        own["_modules"] = {"inner": torch.nn.ReLU()}
        own.update(training=True, asked=0, _non_persistent_buffers_set=set())

    def counted(self):
        self.asked += 1
        raise AttributeError("not this one")

    def fails(self):
        raise ValueError("this one")

    own = {"__init__": init, "cls_attribute": 3, "counted": property(counted),
           "fails": property(fails), **names}  # fmt: skip
    cls = type("Fresh", bases, own)
    return cls, cls()


def adopt(cls):
    """Have a class read its parts by compiled code; whether it does."""
    if not selection.ready():
        pytest.skip("no native code here")
    made = part_reads.make(Module, ("_parameters", "_modules", "_buffers"))
    if made is None:
        pytest.skip("another Python")
    return made.adopt(cls)


def read(made, name):
    try:
        return getattr(made, name)
    except Exception as error:
        return type(error), str(error)


def usual(cls, made, name):
    """What Python reads, by the rules for classes with ``__getattr__``."""
    try:
        try:
            return cls.__getattribute__(made, name)
        except AttributeError:
            return cls.__getattr__(made, name)
    except Exception as error:
        return type(error), str(error)


def check(cls, made, more=()):
    for name in (*NAMES, *more):
        found, wanted = read(made, name), usual(cls, made, name)
        assert found is wanted or found == wanted, name


def test_it_reads_what_python_reads():
    cls, made = fresh()
    before = [read(made, name) for name in NAMES]
    assert adopt(cls)
    check(cls, made)
    for name, wanted in zip(NAMES, before, strict=True):
        found = read(made, name)
        assert found is wanted or found == wanted, name


def test_a_class_is_adopted_by_being_used():
    cls, made = fresh()
    for _ in range(3000):  # until native code pays
        assert made.inner.__class__ is torch.nn.ReLU
    assert adopt(cls)
    assert id(cls) in module._READ


def test_a_property_that_fails_is_asked_once():
    cls, made = fresh()
    assert adopt(cls)
    read(made, "counted")
    assert made.asked == 1


def test_other_errors_of_properties_end_the_search():
    cls, made = fresh()
    assert adopt(cls)
    made.__dict__["_parameters"]["fails"] = 1
    assert read(made, "fails") == (ValueError, "this one")


def own_getattr(self, name):
    return f"own {name}"


def own_getattribute(self, name):
    return name if name in ("weight", "inner") else object.__getattribute__(self, name)


@pytest.mark.parametrize("name", ["__getattr__", "__getattribute__"])
@pytest.mark.parametrize("where", ["class", "base", "mixin", "above"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_classes_that_read_otherwise_are_left_alone(name, where, when):
    function = own_getattr if name == "__getattr__" else own_getattribute
    mixin, other = type("Mixin", (), {}), type("Other", (), {})
    base, _ = fresh((mixin, Module))
    cls, made = fresh((base, other))
    home = {"class": cls, "base": base, "mixin": mixin, "above": other}[where]
    if where == "above" and name == "__getattr__":
        home = mixin  # behind Module it is not asked
    if when == "before":
        setattr(home, name, function)
        assert not adopt(cls)
    else:
        assert adopt(cls) and adopt(base)
        setattr(home, name, function)
    check(cls, made)
    if not (where == "above" and name == "__getattribute__"):
        assert read(made, "weight") in ("weight", "own weight")


def test_other_bases():
    class Reads:
        def __getattr__(self, name):
            return f"other {name}"

    mixin = type("Mixin", (Module,), {})
    cls, made = fresh((mixin,))
    assert adopt(cls)
    cls.__bases__ = (type("Mixed", (Reads, Module), {}),)
    assert made.weight == "other weight"
    check(cls, made)


def test_the_method_of_all_modules_is_replaced(monkeypatch):
    cls, made = fresh()
    assert adopt(cls)
    monkeypatch.setattr(Module, "__getattr__", own_getattr)
    assert made.weight == "own weight"
    monkeypatch.undo()
    check(cls, made)
    assert adopt(cls)


def test_subclasses_of_adopted_classes():
    base, _ = fresh()
    assert adopt(base)
    cls, made = fresh((base,), __getattr__=own_getattr)
    assert made.weight == "own weight"
    assert not adopt(cls)
    _, made = fresh((base,), __getattribute__=own_getattribute)
    assert made.weight == "weight"


def test_attributes_that_are_kept_elsewhere():
    table = {}
    cls, made = fresh(__dict__=property(lambda self: table))
    assert not adopt(cls)
    table["_parameters"] = {"weight": 1}
    assert made.weight == 1


@pytest.mark.parametrize("table", ["_parameters", "_modules", "_buffers"])
def test_other_tables(table):
    cls, made = fresh()
    assert adopt(cls)
    own = made.__dict__
    own[table] = Otherwise(own[table])
    assert made.missing == "made missing"
    check(cls, made)
    del own[table]
    check(cls, made)


def test_names_that_are_not_plain():
    cls, made = fresh()
    assert adopt(cls)
    check(cls, made, [Name("else"), "\ud800"])


def test_attributes_of_the_instance_and_the_class_come_first():
    cls, made = fresh()
    assert adopt(cls)
    made.__dict__["weight"] = 1
    assert made.weight == 1
    del made.__dict__["weight"]
    cls.weight = 2
    assert made.weight == 2
    del cls.weight
    made.inner = torch.nn.Tanh()
    del made.buffer
    check(cls, made)


def test_nothing_is_kept_alive():
    cls, made = fresh()
    assert adopt(cls)
    read(made, "missing")
    assert made.inner is not None and made.weight is not None
    known = weakref.ref(cls), weakref.ref(made), weakref.ref(made.inner), id(cls)
    del cls, made
    gc.collect()
    assert all(found() is None for found in known[:3])
    assert known[3] not in module._READ


def test_parts_in_tables_with_keys_that_run_code():
    cls, made = fresh()
    assert adopt(cls)

    class Key:
        def __hash__(self):
            return hash("weight")

        def __eq__(self, other):
            made.__dict__["_parameters"] = {}
            gc.collect()
            raise KeyError("while comparing")

    made.__dict__["_parameters"] = {Key(): 1}
    made.__dict__["_modules"]["weight"] = 1
    assert read(made, "weight")[0] is KeyError
