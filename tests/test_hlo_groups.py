"""Replica groups in their three forms, the modes that give ids a meaning, and pairs."""

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xla_cost.errors import XlaCostError
from xla_cost.groups import DeviceGroups
from xla_cost.hlo import Module, parse
from xla_cost.hlo.groups import collective_groups, group_mode, states_group

Groups = tuple[tuple[int, ...], ...]


def module_of(
    opcode: str, attributes: str, header: str = "", types: str = "f32[8] f32[8]"
) -> Module:
    """A module whose last instruction is the collective."""
    operand, result = types.split()
    (module,) = parse(
        f"HloModule m{header}\nENTRY e {{\n  p = {operand} parameter(0)\n"
        f"  ROOT c = {result} {opcode}(p){attributes}\n}}\n"
    )
    return module


def groups_of(
    opcode: str, attributes: str, header: str = "", types: str = "f32[8] f32[8]"
) -> Groups:
    module = module_of(opcode, attributes, header, types)
    return collective_groups(module.entry.root, module).members


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{0,1},{2,3}}", ((0, 1), (2, 3))),
        ("{{2,0},{1,3}}", ((2, 0), (1, 3))),
        ("{ {0, 1}, {2, 3} }", ((0, 1), (2, 3))),
        ("{{0}}", ((0,),)),
        ("[2,4]<=[8]", ((0, 1, 2, 3), (4, 5, 6, 7))),
        # 0..7 as 4x2, transposed to 2x4: the columns 0 2 4 6 and 1 3 5 7
        ("[2,4]<=[4,2]T(1,0)", ((0, 2, 4, 6), (1, 3, 5, 7))),
        # 0..7 as 2x2x2, axes (1,0,2): 0 1 4 5, 2 3 6 7
        ("[2,4]<=[2,2,2]T(1,0,2)", ((0, 1, 4, 5), (2, 3, 6, 7))),
        ("[8,1]<=[8]", tuple((d,) for d in range(8))),
        ("mesh['x'=2,'y'=2] {'y'}", ((0, 1), (2, 3))),
        ("mesh['x'=2,'y'=2] {'x'}", ((0, 2), (1, 3))),
        ("mesh['x'=2,'y'=2] {'x','y'}", ((0, 1, 2, 3),)),
        ("mesh['x'=2,'y'=2] {'y','x'}", ((0, 2, 1, 3),)),
        # ids 0..3 as 2x2 transposed are 0 2 1 3; laid out as x=2, y=2
        ("mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'y'}", ((0, 2), (1, 3))),
        ("mesh['x'=2,'y'=2], device_ids=(3,2,1,0) {'y'}", ((3, 2), (1, 0))),
        # a of size 8 as 2x4: the part of size 4 behind the part of size 2
        ("mesh['a'=8] {'a':(2)4}", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("mesh['a'=8] {'a':(1)2}", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['a'=8] {'a':(2)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
    ],
)  # fmt: skip
def test_the_three_forms(text: str, expected: Groups) -> None:
    header = ", num_partitions=8"
    attributes = f", channel_id=1, replica_groups={text}, use_global_device_ids=true"
    assert groups_of("all-reduce", attributes, header) == expected


@pytest.mark.parametrize("text", ["", ", replica_groups={}", ", replica_groups={{}}"])
def test_no_groups_mean_everyone(text: str) -> None:
    attributes = f", channel_id=3, use_global_device_ids=true{text}"
    assert groups_of("all-reduce", attributes, ", num_partitions=4") == ((0, 1, 2, 3),)
    header = ", replica_count=2, num_partitions=3"
    assert groups_of("all-reduce", attributes, header) == (tuple(range(6)),)


HEADER = ", replica_count=2, num_partitions=3"  # device = replica * 3 + partition


@pytest.mark.parametrize(
    ("opcode", "attributes", "mode", "expected"),
    [
        # replicas 0 and 1, once in each of the three partitions
        ("all-reduce", "replica_groups={{0,1}}", "replica", ((0, 3), (1, 4), (2, 5))),
        ("all-reduce", "replica_groups={}", "replica", ((0, 3), (1, 4), (2, 5))),
        # the groups list replicas, and all three partitions of each take part
        ("all-reduce", "channel_id=1, replica_groups={{0},{1}}", "replica_and_partition",
         ((0, 1, 2), (3, 4, 5))),
        ("all-gather", "channel_id=1, replica_groups={{0,1}}", "replica_and_partition",
         ((0, 1, 2, 3, 4, 5),)),
        ("all-reduce", "channel_id=1, replica_groups={{0,5},{1,4}}, use_global_device_ids=true",
         "flattened", ((0, 5), (1, 4))),
        # an all-to-all with a channel lists partitions, once in each of the two replicas
        ("all-to-all", "channel_id=1, replica_groups={{0,2}}", "partition", ((0, 2), (3, 5))),
        ("all-to-all", "replica_groups={{0,1}}", "replica", ((0, 3), (1, 4), (2, 5))),
        ("collective-broadcast", "channel_id=2, replica_groups={}", "partition",
         ((0, 1, 2), (3, 4, 5))),
        ("collective-permute", "channel_id=1, source_target_pairs={{0,1}}", "partition",
         ((0, 1), (3, 4))),
        ("collective-permute-start", "source_target_pairs={{0,1}}", "replica",
         ((0, 3), (1, 4), (2, 5))),
    ],
)  # fmt: skip
def test_the_four_modes(opcode: str, attributes: str, mode: str, expected: Groups) -> None:
    module = module_of(opcode, f", {attributes}", HEADER)
    assert group_mode(module.entry.root) == mode
    assert collective_groups(module.entry.root, module).members == expected


def test_pairs_are_marked_as_pairs() -> None:
    module = module_of("collective-permute", ", channel_id=1, source_target_pairs={{0,1},{1,0}}")
    expected = DeviceGroups(((0, 1), (1, 0)), is_pairs=True)
    assert collective_groups(module.entry.root, module) == expected
    none = module_of("collective-permute", ", source_target_pairs={}")
    assert collective_groups(none.entry.root, none).count == 0


@pytest.mark.parametrize("value", ['"{{0,1},{1,2}}"', "{{0,1},{1,2}}"])
def test_send_and_recv_take_their_pairs_from_frontend_attributes(value: str) -> None:
    attributes = (
        f", channel_id=1, frontend_attributes={{_xla_send_recv_source_target_pairs={value}}}"
    )
    for opcode in ("send", "recv"):
        assert groups_of(opcode, attributes) == ((0, 1), (1, 2))


def test_fragment_with_a_channel_takes_every_partition_that_its_shardings_show() -> None:
    # openxla/xla issue 5655: a line of a module for 2 GPUs, whose group {0} lists replicas
    (module,) = parse(
        "p = f32[8,2] parameter(0), sharding={devices=[1,2]0,1}\n"
        "all-reduce = f32[8,2] all-reduce(p), channel_id=7, replica_groups={{0}}, to_apply=add\n"
    )
    assert collective_groups(module.entry.root, module).members == ((0, 1),)


def test_without_header_the_types_of_an_all_gather_tell_its_group() -> None:
    module = module_of("all-gather", ", dimensions={0}", types="f32[8] f32[32]")
    assert collective_groups(module.entry.root, module).size == 4
    assert not states_group(module.entry.root, module)
    scatter = module_of("reduce-scatter", ", dimensions={0}", types="f32[32] f32[16]")
    assert collective_groups(scatter.entry.root, scatter).size == 2


def test_without_header_everyone_is_what_other_groups_name() -> None:
    (module,) = parse(
        "HloModule m\nENTRY e {\n  p = f32[8] parameter(0)\n"
        "  a = f32[8] all-reduce(p), replica_groups={{0,1},{2,3}}\n"
        "  ROOT b = f32[8] all-reduce(a), replica_groups={}\n}\n"
    )
    assert states_group(module.entry.by_name["a"], module)
    assert not states_group(module.entry.root, module)
    assert collective_groups(module.entry.root, module).members == ((0, 1, 2, 3),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[2,2]<=[16]", ["tiles 4 devices", "expected 16"]),
        ("[2,2,2]<=[8]", ["3 dimensions", "expected 2"]),
        ("[2,4]<=[4,2]T(1,1)", ["T(1,1)", "permutation of 2"]),
        ("[2,4]<=[4,2]T(0)", ["T(0)", "permutation of 2"]),
        ("[0,4]<=[0]", ["0 devices"]),
        ("[4294967296,4294967296]<=[18446744073709551616]", ["devices"]),
        ("mesh['x'=2,'y'=2] {'z'}", ["'z'", "expected one of x, y"]),
        ("mesh['x'=2,'y'=2] {'x','x'}", ["each mesh axis once"]),
        ("mesh['x'=2,'x'=2] {'x'}", ["'x'=2", "new 'name'=size"]),
        ("mesh['x'=6] {'x':(1)4}", ["'x':(1)4", "divide 6"]),
        ("mesh['x'=2,'y'=2], device_ids=([3,2]T(1,0)) {'x'}", ["tiles 4", "expected 6"]),
        ("mesh['x'=2], device_ids=(0,0) {'x'}", ["each of 2 devices once"]),
        ("mesh['x'=2", ["expected mesh["]),
        ("{{0,1},{1,2}}", ["id 1 found twice"]),
        ("{{0,1},{x}}", ["{{0,1},{x}}", "expected {{0,1},{2,3}}"]),
        ("all", ["groups all found"]),
        ("{{0,-1}}", ["{{0,-1}}"]),
    ],
)  # fmt: skip
def test_wrong_groups_are_refused_with_place_and_value(text: str, words: list[str]) -> None:
    module = module_of("all-reduce", f", replica_groups={text}")
    with pytest.raises(XlaCostError) as error:
        collective_groups(module.entry.root, module)
    message = str(error.value)
    for word in ["line 4", "all-reduce c", *words]:
        assert word in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("pairs", "word"),
    [("{{0,1},{2,1}}", "target 1 found twice"), ("{{0,1,2}}", "expected {source,target}")],
)
def test_wrong_pairs_are_refused(pairs: str, word: str) -> None:
    module = module_of("collective-permute", f", source_target_pairs={pairs}")
    with pytest.raises(XlaCostError, match=word.replace("{", r"\{")):
        collective_groups(module.entry.root, module)


@pytest.mark.parametrize(
    ("opcode", "attributes"),
    [
        ("all-reduce", ", replica_groups={{0,1},{2,6}}, use_global_device_ids=true, channel_id=1"),
        ("all-reduce", ", replica_groups={{0,1},{2,6}}"),
        ("all-to-all", ", replica_groups=[1,7]<=[7], channel_id=1"),
        ("collective-permute", ", source_target_pairs={{0,1},{1,6}}"),
    ],
)
def test_an_id_beyond_the_devices_of_the_header_is_refused(opcode: str, attributes: str) -> None:
    module = module_of(opcode, attributes, ", replica_count=2, num_partitions=3")
    with pytest.raises(XlaCostError) as error:
        collective_groups(module.entry.root, module)
    assert "id 6 found in its groups, expected ids below the 6 devices" in str(error.value)
    for header in (", num_partitions=7", ", num_partitions=1", ""):  # 1: as XLA's own tests have it
        module = module_of(opcode, attributes, header)
        assert collective_groups(module.entry.root, module).members


@given(st.data())
def test_iota_is_the_transposed_index(data: st.DataObject) -> None:
    reshape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    perm = data.draw(st.permutations(range(len(reshape))))
    total = prod(reshape)
    size = data.draw(st.sampled_from([d for d in range(1, total + 1) if total % d == 0]))
    text = f"[{total // size},{size}]<=[{','.join(map(str, reshape))}]T({','.join(map(str, perm))})"
    found = groups_of("all-reduce", f", replica_groups={text}")
    # independently: walk the index space in the permuted order, compute each flat id
    flat = []
    for place in product(*(range(reshape[axis]) for axis in perm)):
        index = dict(zip(perm, place, strict=True))
        device = 0
        for axis, length in enumerate(reshape):
            device = device * length + index[axis]
        flat.append(device)
    assert [member for group in found for member in group] == flat
    assert all(len(group) == size for group in found)


@given(st.data())
def test_mesh_axes_partition_the_devices(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    chosen = data.draw(st.lists(st.sampled_from(range(len(sizes))), unique=True))
    mesh = ",".join(f"'a{i}'={size}" for i, size in enumerate(sizes))
    axes = ",".join(f"'a{i}'" for i in chosen)
    found = groups_of("all-reduce", f", replica_groups=mesh[{mesh}] {{{axes}}}")
    assert sorted(m for group in found for m in group) == list(range(prod(sizes)))
    assert {len(group) for group in found} == {prod(sizes[i] for i in chosen)}
