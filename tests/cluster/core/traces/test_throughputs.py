"""Measured speeds alone and in pairs."""

from cluster.core.traces import read_throughputs


def test_a_pair_is_found_in_either_order_as_shares_of_the_speed_alone(tmp_path):
    (tmp_path / "alone.csv").write_text(
        "gpu_type,job_type_and_scale,steps_per_s\nv100,\"('A', 1)\",10\nv100,\"('B', 1)\",4\n"
    )
    (tmp_path / "pairs.csv").write_text(
        "gpu_type,job_a,job_b,a_steps_per_s,b_steps_per_s\nv100,\"('A', 1)\",\"('B', 1)\",5,3\n"
    )
    table = read_throughputs(tmp_path / "alone.csv", tmp_path / "pairs.csv")
    assert table.shared_speeds("v100", ("A", 1), ("B", 1)) == (0.5, 0.75)
    assert table.shared_speeds("v100", ("B", 1), ("A", 1)) == (0.75, 0.5)
    assert table.shared_speeds("k80", ("A", 1), ("B", 1)) == (0.0, 0.0)


def test_the_public_tables_have_three_kinds(shared_dir):
    table = read_throughputs(shared_dir / "traces" / "gavel_throughputs_isolated.csv.gz")
    assert (table.kinds(), len(table.alone)) == (["k80", "p100", "v100"], 492)
