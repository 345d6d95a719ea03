from maxkernel_nb.tpu.present import detect_present_chip


def _device(root, name, vendor, device):
    (root / name).mkdir(parents=True)
    (root / name / "vendor").write_text(vendor + "\n")
    (root / name / "device").write_text(device + "\n")


def test_a_tpu_on_the_bus_is_named(tmp_path):
    _device(tmp_path, "0000:00:04.0", "0x8086", "0x006f")  # another vendor's device with the same id
    assert detect_present_chip(tmp_path) is None
    _device(tmp_path, "0000:00:05.0", "0x1ae0", "0x0063")
    assert detect_present_chip(tmp_path) == "v5e"


def test_a_machine_without_a_readable_bus_has_none(tmp_path):
    assert detect_present_chip(tmp_path / "nothing") is None
