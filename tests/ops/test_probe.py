"""The probe reads memory: its buffer is far larger than the caches that the system reports."""

import pytest

from swiftk import _testing

ISA = "baseline"
MB = 1 << 20


def write_cache(root, cpu, index, level, size, shared):
    folder = root / f"cpu{cpu}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    for name, text in (("level", level), ("size", size), ("shared_cpu_list", shared)):
        (folder / name).write_text(f"{text}\n")


def test_shared_caches_count_once(tmp_path):
    for cpu in range(4):
        write_cache(tmp_path, cpu, 0, 1, "48K", cpu)
        write_cache(tmp_path, cpu, 1, 1, "64K", cpu)
        write_cache(tmp_path, cpu, 2, 2, "2048K", cpu)
        write_cache(tmp_path, cpu, 3, 3, "32M", "0-1" if cpu < 2 else "2-3")
    assert _testing.ops.last_caches(str(tmp_path)) == 64 * MB


def test_the_deepest_level_counts(tmp_path):
    write_cache(tmp_path, 0, 0, 1, "32K", 0)
    write_cache(tmp_path, 0, 1, 2, "1024K", 0)
    write_cache(tmp_path, 1, 0, 1, "32K", 1)
    write_cache(tmp_path, 1, 1, 2, "1024K", 1)
    assert _testing.ops.last_caches(str(tmp_path)) == 2 * MB


@pytest.mark.parametrize("size", ["", "?", "12X"])
def test_a_size_that_says_nothing(tmp_path, size):
    write_cache(tmp_path, 0, 0, 3, size, 0)
    assert _testing.ops.last_caches(str(tmp_path)) == 0


def test_no_report(tmp_path):
    assert _testing.ops.last_caches(str(tmp_path)) == 0


def test_the_buffer_exceeds_the_caches():
    found = _testing.ops.Kernels(ISA, 1).probe("float32")
    assert found["read_bytes"] >= max(512 * MB, 4 * _testing.ops.last_caches())
    assert found["read_bytes_per_s"] > 0 and found["flops_per_s"] > 0


def test_the_buffer_takes_what_is_given():
    assert _testing.ops.Kernels(ISA, 1).probe("float32", memory=64 * MB)["read_bytes"] == 64 * MB
