"""`price`: a Program on a Machine under a Policy."""

from __future__ import annotations

from xla_cost.machine import Machine, load
from xla_cost.network import NetworkPolicy, network_policy
from xla_cost.policy import Policy, policy
from xla_cost.price.duration import task_times
from xla_cost.price.estimate import Estimate
from xla_cost.price.execute import execute
from xla_cost.price.schedule import COMPUTE
from xla_cost.price.tasks import task_graph
from xla_cost.program import Program


def price(
    program: Program,
    machine: Machine | str,
    under: Policy | str = "calibrated",
    network: NetworkPolicy | None = None,
) -> Estimate:
    """What one execution of `program` costs per device on `machine` under a policy.

    Machine and policy may be given by name. `network` replaces what the policy says about
    collectives by something finer (de-duplicated dispatch, another cross-pod reading).
    The program's task graph is kept between calls, so pricing it again elsewhere takes
    milliseconds. Raises XlaCostError for an unknown name, a number format the policy does not
    widen, or a group that reaches past the last tier.
    """
    machine = load(machine) if isinstance(machine, str) else machine
    rules = policy(under)
    graph = task_graph(program, rules)
    rules_of_network = network or network_policy(rules)
    times = task_times(graph, machine, rules, rules_of_network, program.devices)
    execution = execute(
        graph, [time.stages for time in times], overlap=rules.iterations_in_flight > 1
    )
    busy = [0.0] * (1 + len(machine.tiers))
    for time, count in zip(times, execution.executions, strict=True):
        for stage in time.stages:
            for stream, seconds in stage:
                busy[stream] += seconds * count
    return Estimate(
        program=program,
        machine=machine,
        policy=rules,
        network=rules_of_network,
        graph=graph,
        times=times,
        execution=execution,
        latency_s=execution.latency_s,
        compute_s=busy[COMPUTE],
        comm_s_by_tier={tier.name: busy[1 + i] for i, tier in enumerate(machine.tiers)},
    )
