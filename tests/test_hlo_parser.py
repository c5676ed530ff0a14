"""HLO text to modules: every construct seen in dumps of several backends, ages and people."""

from itertools import pairwise
from pathlib import Path

import pytest
from hlo_texts import ALL, LENIENT
from hypothesis import given
from hypothesis import strategies as st

from xla_cost.errors import XlaCostError
from xla_cost.hlo import Instruction, Module, Shape, TupleShape, parse, read_file


def only(text: str) -> Module:
    """The one module of a text that is read whole."""
    (module,) = parse(text)
    assert module.unparsed == ()
    return module


def entry(lines: str) -> Module:
    return only(f"HloModule m\nENTRY e {{\n{lines}\n}}\n")


@pytest.mark.parametrize("name", ALL)
def test_our_texts_are_read_without_a_line_left_over(name: str) -> None:
    for module in parse(ALL[name]):
        assert module.unparsed == ()
        for computation in module.computations.values():
            assert computation.is_complete
            for instruction in computation.instructions:
                assert all(operand in computation.by_name for operand in instruction.operands)
                assert all(called in module.computations for called in instruction.called)
                assert instruction.op_name == instruction.metadata.get("op_name", "")


def test_header_and_entry() -> None:
    module = only(
        "HloModule jit_f, is_scheduled=true, replica_count=2, num_partitions=4, "
        'frontend_attributes={a="x, y"}\n\nENTRY %main.3 (p: f32[2]) -> f32[2] {\n'
        "  ROOT %p = f32[2]{0} parameter(0)\n}\n"
    )
    assert (module.name, module.is_scheduled) == ("jit_f", True)
    assert (module.replica_count, module.num_partitions, module.device_count) == (2, 4, 8)
    assert module.attributes["frontend_attributes"] == '{a="x, y"}'
    assert module.entry.name == "main.3"
    assert module.entry.is_entry
    assert module.problems == ()


def test_instruction_parts() -> None:
    module = entry(
        "  %a.1 = f32[8,4]{1,0} parameter(0)\n"
        "  ROOT %dot = (f32[8,4]{1,0}, s32[]) custom-call(%a.1, %a.1, /*index=2*/%a.1), "
        'custom_call_target="x, (y", calls={%c.1, %c.2}, metadata={op_name="f" source_line=3}'
    )
    root = module.entry.root
    assert (root.name, root.opcode, root.is_root, root.line) == ("dot", "custom-call", True, 4)
    assert root.shape == TupleShape((Shape("f32", (8, 4)), Shape("s32")))
    assert root.operands == ("a.1", "a.1", "a.1")
    assert root.operand_shapes == (None, None, None)
    assert root.attributes["custom_call_target"] == '"x, (y"'
    assert root.called == ("c.1", "c.2")
    assert root.op_name == "f"
    assert module.entry.parameters[0].operands == ()


def test_operands_printed_with_their_types() -> None:
    module = entry(
        "  %p = f32[8]{0:T(1024)} parameter(0)\n"
        "  %t = (f32[8]{0}, token[]) custom-call(f32[8]{0:T(1024)} %p)\n"
        "  ROOT g = f32[8] get-tuple-element((f32[8]{0:T(1024)}, token[]) %t), index=0"
    )
    call, get = module.entry.instructions[1:]
    assert call.operands == ("p",)
    assert call.operand_shapes == (Shape("f32", (8,)),)
    assert get.operands == ("t",)
    assert get.operand_shapes == (TupleShape((Shape("f32", (8,)), Shape("token"))),)


def test_inline_constants_become_instructions() -> None:
    module = entry(
        "  i = s32[] parameter(0)\n"
        '  ROOT n = s32[] add(i, s32[] constant(1)), metadata={op_name="x"}'
    )
    names = [instruction.name for instruction in module.entry.instructions]
    assert names == ["i", "n.operand.0", "n"]
    one = module.entry.by_name["n.operand.0"]
    assert (one.opcode, one.operand_text, one.shape) == ("constant", "1", Shape("s32"))
    assert module.entry.root.operands == ("i", "n.operand.0")
    deeper = entry("  ROOT n = s32[] add(s32[] negate(s32[] constant(3)), s32[] constant(1))")
    assert [i.opcode for i in deeper.entry.instructions][-1] == "add"
    places = {i.name: n for n, i in enumerate(deeper.entry.instructions)}
    for instruction in deeper.entry.instructions:
        assert all(places[o] < places[instruction.name] for o in instruction.operands)


def test_types_left_out_are_told_by_the_operands() -> None:
    module = entry(
        "  p = (s32[], (f32[2,3], token[])) parameter(0)\n"
        "  a = get-tuple-element(p), index=1\n"
        "  b = get-tuple-element(a), index=0\n"
        "  c = tuple(b, a)\n"
        "  d = negate(b)\n"
        "  e = compare(b, d), direction=LT\n"
        "  ROOT f = frobnicate(b)"
    )
    shapes = {i.name: i.shape for i in module.entry.instructions}
    array = Shape("f32", (2, 3))
    assert shapes["a"] == TupleShape((array, Shape("token")))
    assert shapes["b"] == shapes["d"] == array
    assert shapes["c"] == TupleShape((array, TupleShape((array, Shape("token")))))
    assert shapes["e"] == Shape("pred", (2, 3))
    assert shapes["f"] == Shape("opaque")


def test_statements_over_several_lines() -> None:
    module = entry(
        "  p = (u32[], (f32[2,2], u32[]),\n      token[])\n      parameter(0)\n"
        "  s = (f32[2,2], u32[], token[]) send(p,\n      p), channel_id=1,\n"
        '      frontend_attributes={\n        a="1",\n        b="2"\n      }\n'
        "  ROOT r = f32[2,2] dot(s, s), lhs_contracting_dims={1}\n"
        "      , rhs_contracting_dims={0}"
    )
    first, send, dot = module.entry.instructions
    assert len(first.shape.arrays) == 4
    assert send.operands == ("p", "p")
    assert send.frontend_attributes == {"a": "1", "b": "2"}
    assert dot.attributes["rhs_contracting_dims"] == "{0}"
    assert [i.line for i in module.entry.instructions] == [3, 6, 12]


def test_several_statements_on_one_line() -> None:
    module = only(
        "c { a = s32[] parameter(0) ROOT b = pred[] compare(a, a), direction=LT }  "
        "ENTRY e { p = s32[2]{0} parameter(0) r = (s32[2], s32[2]) tuple(p, p) "
        "q = s32[2] broadcast(p), dimensions={0} ROOT z = s32[2] negate(q) }"
    )
    assert [i.name for i in module.computations["c"].instructions] == ["a", "b"]
    assert [i.name for i in module.entry.instructions] == ["p", "r", "q", "z"]
    assert module.computations["c"].root.attributes == {"direction": "LT"}
    assert module.entry.by_name["q"].attributes == {"dimensions": "{0}"}


def test_strings_hold_anything() -> None:
    module = only(LENIENT["attributes"])
    first, cublas, kernel, start, done = module.entry.instructions
    assert first.attributes["sharding"] == "{mesh['x'=2], [{}, {}], unreduced=max{'x'}}"
    assert cublas.backend_config.startswith("{")
    assert '"lhs_contracting_dimensions":["1"]' in cublas.backend_config
    front = kernel.frontend_attributes
    assert front["kernel"] == '{\n  "a": [1, 2],\n  "b": "}"\n}'
    assert front["other"] == "{{0,1}}"
    assert front["composite.attributes"] == "{n = 1 : i32, t = dense<1> : tensor<i32>}"
    assert kernel.op_name == "a[b=((0, 1), (2, 3))]/{c}"
    assert kernel.source == "x.py:12"
    assert (start.opcode, start.called) == ("fusion-start", ("f.1",))
    assert done.operands == ("s",)
    assert module.computations["f.1"].execution_thread == "sparsecore"
    assert module.entry.execution_thread == "main"
    assert module.is_scheduled


def test_metadata_escapes_and_look_alikes() -> None:
    module = entry(
        "  a = f32[] parameter(0), frontend_attributes={m=\"metadata={op_name='no'}\"}\n"
        '  b = f32[] negate(a), metadata={op_type="t" op_name="p[\\\'q\\\']"}\n'
        '  ROOT c = f32[] negate(b), metadata={source_file="f.py" op_name="late" }'
    )
    a, b, c = module.entry.instructions
    assert (a.op_name, b.op_name, c.op_name) == ("", "p['q']", "late")
    assert b.metadata == {"op_type": "t", "op_name": "p['q']"}
    assert (a.source, c.source) == ("", "f.py:0")


def test_source_from_the_stack_frame_tables() -> None:
    root = only(LENIENT["stack_frames"]).entry.root
    assert root.source == 'src/a "b".py:7'
    assert [(f.file, f.function, f.line) for f in root.frames] == [
        ('src/a "b".py', "step", 7),
        ("src/model.py", "step", 28),
    ]
    assert root.op_name == "jit(f)/sin"


def test_called_computations_in_every_form() -> None:
    def called(attributes: str) -> tuple[str, ...]:
        return Instruction("i", "x", False, "s32[]", "", attributes, 1).called

    assert called("condition=%c, body=%b") == ("b", "c")
    assert called("branch_computations={%x, y.1}") == ("x", "y.1")
    assert called("true_computation=t, false_computation=f") == ("t", "f")
    assert called("select=%s, scatter=%a") == ("s", "a")
    assert called("to_apply=%add, is_composite=true") == ("add",)
    assert called("called_computations={}") == ()


def test_computations_written_inside_instructions() -> None:
    module = only(
        "HloModule m\nENTRY e {\n  p = f32[4] parameter(0)\n"
        "  ROOT m = f32[4] map(p), dimensions={0}, to_apply={\n"
        "    a = f32[] parameter(0)\n"
        "    b = f32[] map(a), to_apply={ x = f32[] parameter(0) ROOT y = f32[] sine(x) }\n"
        '    ROOT n = f32[] negate(b)\n  }, metadata={op_name="q"}\n}\n'
    )
    assert list(module.computations) == ["e", "m.to_apply", "b.to_apply"]
    assert module.entry.root.called == ("m.to_apply",)
    assert module.entry.root.op_name == "q"
    body = module.computations["m.to_apply"]
    assert [(i.name, i.line) for i in body.instructions] == [("a", 5), ("b", 6), ("n", 7)]
    assert body.by_name["b"].called == ("b.to_apply",)
    assert [i.opcode for i in module.computations["b.to_apply"].instructions][-1] == "sine"


def test_several_modules_in_one_text() -> None:
    modules = parse(LENIENT["many_modules"])
    assert [module.name for module in modules] == ["e", "second", "third"]
    assert [len(module.entry.instructions) for module in modules] == [2, 2, 1]
    assert modules[0].problems == ("no HloModule line", "no ENTRY: took e")
    assert modules[1].replica_count == 2


def test_text_without_header_entry_or_root() -> None:
    module = only(
        "helper {\n  a = s32[] parameter(0)\n}\n\n"
        "main {\n  p = s32[] parameter(0)\n  c = s32[] call(p), to_apply=helper\n}\n"
        "other {\n  q = s32[] parameter(0)\n}\n"
    )
    assert module.entry.name == "other"
    assert module.entry.root.name == "q"
    assert module.problems == ("no HloModule line", "no ENTRY: took other")


def test_the_entry_is_one_that_nothing_calls() -> None:
    module = only(
        "main {\n  p = s32[] parameter(0)\n  c = s32[] call(p), to_apply=helper\n}\n"
        "helper {\n  a = s32[] parameter(0)\n}\n"
    )
    assert module.entry.name == "main"


def test_fragment_outside_any_computation() -> None:
    module = only("...\n  a = f32[2] add(x, y)\n  b = f32[2] negate(a), channel_id=3\n...\n")
    assert module.entry.name == "fragment"
    assert [i.name for i in module.entry.instructions] == ["a", "b"]
    assert any("outside any computation" in problem for problem in module.problems)
    assert sum("left out" in problem for problem in module.problems) == 2


def test_text_cut_in_the_middle() -> None:
    (module,) = parse(
        "HloModule m\n\n%a (p: f32[2]) -> f32[2] {\n  ROOT %p = f32[2] parameter(0)\n}\n\n"
        "%b (q: f32[2]) -> f32[2] {\n  %q = f32[2] parameter(0)\n  ROOT %r = (f32[2])\n"
    )
    assert module.computations["a"].is_complete
    assert not module.computations["b"].is_complete
    assert module.computations["b"].root.name == "q"
    assert module.unparsed == ((9, "ROOT %r = (f32[2])"),)
    assert "line 7: the text ends inside b" in module.problems


def test_instruction_cut_inside_a_string_keeps_what_came_before() -> None:
    (module,) = parse(
        "  %g = f32[8] all-gather(f32[4] %p), replica_groups={{0,1}}, "
        'metadata={op_name="jit(forward)/ji'
    )
    gather = module.entry.root
    assert gather.attributes["replica_groups"] == "{{0,1}}"
    assert gather.op_name == "jit(forward)/ji"
    assert any("cut in its attributes" in problem for problem in module.problems)


def test_a_brace_too_many_does_not_end_the_computation() -> None:
    (module,) = parse(
        "HloModule m\nf {\n  p = f32[2] parameter(0)\n  c = bf16[2] convert(p)}\n"
        "  ROOT t = (bf16[2]) tuple(c)\n}\nENTRY e {\n  ROOT p = f32[2] parameter(0)\n}\n"
    )
    assert [i.name for i in module.computations["f"].instructions] == ["p", "c", "t"]
    assert module.unparsed == ()
    assert any("f goes on" in problem for problem in module.problems)


def test_an_unclosed_bracket_costs_only_its_own_line() -> None:
    (module,) = parse(
        "HloModule m\nENTRY e {\n  a = f32[2] parameter(0)\n  b = f32[2] negate(a\n"
        "  c = f32[2] negate(a), x={\n  ROOT d = f32[2] negate(a)\n}\n"
    )
    assert [i.name for i in module.entry.instructions] == ["a", "c", "d"]
    assert module.unparsed == ((4, "b = f32[2] negate(a"),)
    assert module.problems == ("line 5: c is cut in its attributes",)


def test_unknown_element_type_is_listed_with_its_whole_statement() -> None:
    (module,) = parse(
        "HloModule m\nENTRY e {\n  a = f32[2] parameter(0)\n"
        '  b = zz9[2] custom-call(a), backend_config={\n    "x": {\n    }\n  }\n'
        "  ROOT c = f32[2] negate(a)\n}\n"
    )
    assert [i.name for i in module.entry.instructions] == ["a", "c"]
    assert module.unparsed == ((4, "b = zz9[2] custom-call(a), backend_config={"),)
    assert module.entry.is_complete


def test_lines_not_understood_are_listed_with_their_number() -> None:
    (module,) = parse(
        "HloModule m\nENTRY e {\n  ROOT a = f32[2] parameter(0)\n  what is this\n  %x = y\n}\n}\n"
    )
    assert module.unparsed == ((4, "what is this"), (5, "%x = y"), (7, "}"))


def test_bad_counts_are_a_problem_not_an_error() -> None:
    module = only(
        "HloModule m, num_partitions=many, replica_count=0\nENTRY e {\n p = f32[] parameter(0)\n}"
    )
    assert module.device_count == 1
    assert len([problem for problem in module.problems if "took 1" in problem]) == 2


def test_second_computation_of_a_name_is_kept() -> None:
    module = only("a { p = f32[] parameter(0) }\na { q = f32[] parameter(0) }\n")
    assert list(module.computations) == ["a", "a#2"]


def test_windows_line_ends_and_byte_order_mark() -> None:
    text = ALL["loop"]
    other = parse("\ufeff" + text.replace("\n", "\r\n"))
    assert [c.instructions for c in other[0].computations.values()] == [
        c.instructions for c in parse(text)[0].computations.values()
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "nothing"),
        (" \n\n", "nothing"),
        ('hlo_module {\n  name: "m"\n}\n', "a protobuf in text form"),
        ("module @jit_f {\n  func.func public @main() {\n  }\n}\n", "MLIR"),
        ("hello world", "no HLO instruction in 11 characters"),
        ("HloModule m\n", "no HLO instruction"),
        ("HloModule m\nENTRY e {\n}\n", "no HLO instruction"),
    ],
)
def test_text_without_hlo_is_refused_in_one_sentence(text: str, found: str) -> None:
    with pytest.raises(XlaCostError) as error:
        parse(text, where="here.txt")
    assert str(error.value).startswith(f"here.txt: found {found}")
    assert found in str(error.value)
    assert "expected HLO text" in str(error.value)


def test_read_file(tmp_path: Path) -> None:
    good, binary = tmp_path / "m.hlo", tmp_path / "m.pb"
    good.write_text(ALL["dots"])
    binary.write_bytes(b"\x0a\x05hello\x00\x01\x02")
    assert read_file(good)[0].name == "dots"
    with pytest.raises(XlaCostError, match="binary data"):
        read_file(binary)
    with pytest.raises(XlaCostError, match="cannot be read"):
        read_file(tmp_path / "absent.hlo")
    with pytest.raises(XlaCostError, match="cannot be read"):
        read_file(tmp_path)


names = st.from_regex(r"[a-z_][a-z0-9_.\-]{0,8}", fullmatch=True)


@given(
    st.lists(names, min_size=1, max_size=6, unique=True),
    st.booleans(),
    st.booleans(),
    st.text(alphabet='ab"\\{}()[],= \n/*', max_size=20),
)
def test_printed_instructions_read_back(
    ids: list[str], percent: bool, typed: bool, string: str
) -> None:
    mark = "%" if percent else ""
    quoted = string.replace("\\", "\\\\").replace('"', '\\"')
    lines = [f"  {mark}{ids[0]} = f32[2]{{0}} parameter(0)"]
    for left, right in pairwise(ids):
        kind = "f32[2]{0} " if typed else ""
        lines.append(
            f"  {mark}{right} = f32[2]{{0}} add({kind}{mark}{left}, {kind}{mark}{left}), "
            f'metadata={{op_name="{quoted}"}}'
        )
    module = entry("\n".join(lines))
    assert [i.name for i in module.entry.instructions] == ids
    for instruction, left in zip(module.entry.instructions[1:], ids, strict=False):
        assert instruction.operands == (left, left)
        assert instruction.op_name == string
