"""Numbers as programs print them: what is read of a line, and what is refused because it can be read in two ways."""

from __future__ import annotations

import math
import re
import statistics
import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.workload.reading import Reading, check_alike, plain, read
from tuner.workload.units import NoNumberError, counts_items, is_per_step, is_time, names_items, names_time

RATE = r"rate: ([0-9.]+)"


@pytest.mark.parametrize(
    ("pattern", "output", "value", "resolution"),
    [
        (RATE, "rate: 1830.4", 1830.4, 0.1),
        (RATE, "rate: 1,830.4", 1830.4, 0.1),
        (r"rate: ([0-9.,]+)", "rate: 1,830.4, loss 0.3", 1830.4, 0.1),
        (r"rate: ([0-9.]+).*", "rate: 1,830.4, loss 0.3", 1830.4, 0.1),
        (RATE, "rate: 1,234,830", 1234830.0, 1.0),
        (RATE, "rate: 1.830.400", 1830400.0, 1.0),
        (r"rate: ([0-9.,]+)", "rate: 1.830,4", 1830.4, 0.1),
        (RATE, "rate: 1'830.4", 1830.4, 0.1),
        (RATE, "rate: 1’830.4", 1830.4, 0.1),
        (RATE, "rate: 1_830", 1830.0, 1.0),
        (RATE, "rate: 1\u202f830.4", 1830.4, 0.1),
        (RATE, "rate: 1\u00a0830", 1830.0, 1.0),
        (r"rate: ([0-9. ]+)", "rate: 1 830.4", 1830.4, 0.1),
        (r"([0-9.]+) images/s", "1,830.4 images/s", 1830.4, 0.1),
        (r".*?([0-9.]+) images/s", "at 3: 1,830.4 images/s", 1830.4, 0.1),
        (RATE, "rate: 1.83e3", 1830.0, 10.0),
        (RATE, "rate: 1.83E+03 of 2e3", 1830.0, 10.0),
        (RATE, "rate: 1.83D+03", 1830.0, 10.0),
        (r"rate: (\d+)", "rate: 1830.4", 1830.4, 0.1),
        (r"rate: \D*([0-9.]+)", "rate: \x1b[1;32m1830\x1b[0m", 1830.0, 1.0),
        (r"rate: (.\d+)", "rate: .512", 0.512, 0.001),
        (RATE, "rate: 12.", 12.0, 1.0),
        (RATE, "rate: 12.5, 13.2", 12.5, 0.1),
        (RATE, "rate: 12.5,13.2", 12.5, 0.1),
        (RATE, "rate: 13 +- 1", 13.0, 1.0),
        (r"[0-9.]+ ms", "took 5.2 ms", 5.2, 0.1),
        (r"epoch \d+ (\d+)", "epoch 3 120 ms", 120.0, 1.0),
        # What has no width is not there.
        (RATE, "\ufeffrate: 1\u200b830", 1830.0, 1.0),
        (r"^rate: (\d+)", "\ufeffrate: 12", 12.0, 1.0),
        (r"(\d+)", "\u23f1\ufe0f12", 12.0, 1.0),
        # Marks that the pattern names, and marks of columns, end a number.
        (r"(\d+)·\d+", "12·345", 12.0, 1.0),
        (r"(\d+)x\d+", "16x224", 16.0, 1.0),
        (r"PT([\d.]+)S", "took PT58.1S", 58.1, 0.1),
        (r"\^(\d+)", "10^3", 3.0, 1.0),
        (r"(\d+) \|", "12 | 345", 12.0, 1.0),
        (r"x ([\d.]+)", "3 x 12.5×4", 12.5, 0.1),
        (r"\*\*([\d.]+)", "**12.5** img/s", 12.5, 0.1),
        (RATE, "rate: 12;5", 12.0, 1.0),
        (RATE, "rate: 12\t345", 12.0, 1.0),
        (RATE, "rate: 12–13", 12.0, 1.0),
        (RATE, "rate: 12\\n13", 12.0, 1.0),
        # Columns: the pattern names what parts them, and a digit on the other side.
        (r"^8,([0-9.]+)", "8,152", 152.0, 1.0),
        (r",([0-9.]+)$", "8,1520.4", 1520.4, 0.1),
        (r"^([0-9]+),", "1520,12", 1520.0, 1.0),
        (r"^(\d+) \d+", "12 345", 12.0, 1.0),
        (r",([0-9.]+)$", "8,152", 152.0, 1.0),
        (r"^([0-9]+),", "8,152", 8.0, 1.0),
        (r"^resnet,(\d+)", "resnet,1830,32", 1830.0, 1.0),
        (r"^resnet,([\d.]+),", "resnet,950.125,32", 950.125, 0.001),
        (r"^32 (\d+)", "32 183 100", 183.0, 1.0),
        (r"step (?:\d+).*?([\d.]+) ex", "step 100 183.5 ex/s", 183.5, 0.1),
        # So does a list.
        (r"^resnet,([\d.]+)", "resnet,950,100", 950.0, 1.0),
        (r"^\d+,(\d+)", "32,183,100", 183.0, 1.0),
        (r"^(?:[^,]*,){2}([\d.]+)", "a,32,950,320", 950.0, 1.0),
        (r"([^,]+)$", "a,32,950.125", 950.125, 0.001),
        (r'"rates": \[([\d.]+)', '"rates": [183,190]', 183.0, 1.0),
        # A group of three digits that begins with 0 is a part of a number.
        (r"images/sec=([0-9.]+)", "step=10,images/sec=1,012.4,loss=0.31", 1012.4, 0.1),
        (r'tok/s":([0-9.]+)', '"tok/s":1,012,"loss":3', 1012.0, 1.0),
        (r"images/sec: ([0-9.]+)", "[images/sec: 1,012,loss: 3]", 1012.0, 1.0),
        (r"rate=([0-9.]+)", "step=10,rate=985.1,loss=0.31", 985.1, 0.1),
        (r"rate=([0-9.]+),\d+", "rate=12,84,loss=0.31", 12.0, 1.0),
        (r"^\d+,(\d+)", "12,34,56", 34.0, 1.0),
        (r"^([0-9.]+)", "950,320,resnet", 950.0, 1.0),
        (RATE, "rate: 12,84,fp32", 12.0, 1.0),
        # Dots that the pattern names, or that end a sentence, cut no number.
        (r"step (\d+)\.\.\.", "step 12...", 12.0, 1.0),
        (RATE, "rate: 12. Done", 12.0, 1.0),
        (r"rate: (\d+)", "rate: 12...15", 12.0, 1.0),
        (r"done in ([0-9.]*[0-9])", "done in 12.5...", 12.5, 0.1),
        (r"done in ([0-9.]*[0-9])", "done in 12.5... ok", 12.5, 0.1),
        (r"step ([0-9]+)", "step 12... 3.4 ms", 12.0, 1.0),
        (r"step +([0-9]+)", "step   12... ok", 12.0, 1.0),
        (r"\.\.\. ([0-9.]+) ms", "step 12... 3.4 ms", 3.4, 0.1),
        # No bounds: the way to a logger, and a prompt.
        (r"([0-9.]+) img/s", "INFO: > 12 img/s", 12.0, 1.0),
        (r"([0-9.]+) img/s", "main > train > 12.5 img/s", 12.5, 0.1),
        (r"([0-9.]+) img/s", "bench > 12 img/s", 12.0, 1.0),
        # The pattern may be of what is removed.
        (r"rate: (\d+)\r", "rate: 12\r\n", 12.0, 1.0),
        # UTF-16 without its mark.
        (RATE, "\0".join("rate: 12.5"), 12.5, 0.1),
        # Dots that lead to a number are none of its own.
        (r"rate\.*([0-9.]+)", "rate.....985", 985.0, 1.0),
        (r"rate\.(\d+)", "rate.985", 985.0, 1.0),
        (r"rate.(\.\d+)", "rate .985", 0.985, 0.001),
        # Columns with semicolons between them have a comma for the decimal point.
        (r"^resnet;([^;]+)", "resnet;12,84;32", 12.84, 0.01),
        (r"^resnet;([0-9.]+)", "resnet;987,654", 987.654, 0.001),
        (r'^"([0-9,]+)"', '"987,654";"32"', 987.654, 0.001),
        (r"rate: ([0-9,]+)", "loss 1; rate: 1,830; x", 1830.0, 1.0),
        # A terminal's codes, such as those of tput and of programs that go back to a place.
        (RATE, "rate: \x1b[1m\x1b712.5\x1b8\x1b(B\x1b[m", 12.5, 0.1),
        (r"^(\d+) it", "9\x1b[1G12 it", 12.0, 1.0),
        (r"(\d+)张/秒", "吞吐量833张/秒", 833.0, 1.0),
        # A label that ends another one.
        (r"time: ([0-9.]+)", "time: 0.3521  data_time: 0.0123", 0.3521, 0.0001),
        (r"time: ([0-9.]+)", "data_time: 0.0123  time: 0.3521", 0.3521, 0.0001),
        (r"per_second': ([0-9.]+)", "{'samples_per_second': 12.5}", 12.5, 0.1),
        (r"'fps': ([0-9.]+)", "{'fps': np.float64(12.3), 'p99': np.float64(1.2)}", 12.3, 0.1),
    ],
)
def test_a_number_is_read_whole(pattern: str, output: str, value: float, resolution: float) -> None:
    reading = read(pattern, output)
    assert reading.values == pytest.approx((value,))
    assert reading.resolution == pytest.approx(resolution)


@pytest.mark.parametrize(
    ("pattern", "output", "shown"),
    [
        (RATE, "rate: 12,84", "12,84"),
        (r"rate: ([0-9.,]+)", "rate: 12,84", "12,84"),
        (RATE, "rate: 0,830", "0,830"),
        (RATE, "rate: 1,50,000", "1,50,000"),
        (RATE, "rate: 1 830.4", "1 830.4"),
        (r"([0-9.]+) images/s", "1 830.4 images/s", "1 830.4"),
        (r"([0-9.]+)$", "8,1520", "8,1520"),
        (r"([\d.]+)$", "32,183.4", "32,183.4"),
        (RATE, "rate: 1.830,4", "1.830,4"),
        (r"^([\d.]+)", "9.912,32", "9.912,32"),
        (r"(\d+)", "120,130,140", "120,130,140"),
        (r"p50 (\d+)", "p50 12 130 140", "12 130 140"),
        (r"rate: ([0-9.]+),", "rate: 1,830.4, loss 0.3", "1,830.4"),
        (RATE, "rate: 1.2.3", "1.2.3"),
        (r"real\s+(\d+)", "real 1:23", "1:23"),
        (r"elapsed:([\d.]+)", "elapsed:1:23.4", "1:23.4"),
        (r"m:ss\): \d+:([\d.]+)", "Elapsed (wall clock) time (h:mm:ss or m:ss): 1:02.3", "1:02.3"),
        (r":([\d.]+)$", "took 0:01:02.3", "0:01:02.3"),
        (r"took (\S+)", "took 1:02", "1:02"),
        (r"took (\S+)", "took 1:02,3", "1:02,3"),
        (r"epoch (\S+)", "epoch 1:34.5", "1:34.5"),
        (r"e: ([\d.]+)", "e: 1s 250ms", "1s 250ms"),
        (r"([\d.]+)ms", "e: 1s 250ms", "1s 250ms"),
        (RATE, "rate: 1.83x10^3", "1.83x10^3"),
        # Times whose parts may be columns, or another unit each.
        (r":([\d.]+)s", "took 1:02.3s", "1:02.3s"),
        (r":([\d.]+)s", "took 1:02s", "1:02s"),
        (r":(\d+)min", "took 1:02min", "1:02min"),
        (r":(\d+)h", "took 1:02h", "1:02h"),
        (r"and (\d+)ms", "took 1s and 12ms", "1s and 12ms"),
        (r":([\d.]+)s", "finished 1:02.3s", "1:02.3s"),
        (r"([\d.]+) sec", "took 2 min & 2 sec", "2 min & 2 sec"),
        (r"([\d.]+) sec", "took 2 min - 2 sec", "2 min - 2 sec"),
        (r"seconds: ([\d.]+)", "minutes: 2, seconds: 2.1", "minutes: 2, seconds: 2.1"),
        (r"tv_usec=(\d+)", "tv_sec=1 tv_usec=12000", "sec=1 tv_usec=12000"),
        (r"nanos: (\d+)", "Duration { secs: 1, nanos: 12 }", "secs: 1, nanos: 12"),
        (r"m ([\d.]+)$", "took 1m 2.3", "1m 2.3"),
        (r"m:([\d.]+)$", "1m:2.3", "1m:2.3"),
        (r"m([\d.]+)$", "e: 1m2.3", "1m2.3"),
        (r"([\d.]+) sec", "took 2 min: 2 sec", "2 min: 2 sec"),
        (r"sec: ([\d.]+)", "min: 2, sec: 2.1", "min: 2, sec: 2.1"),
        # Thousands of a number in a list with keys: 98,830 may be two.
        (r"rate=([0-9.]+)", "rate=98,830.4,loss=3", "98,830.4"),
        (r"rate=([0-9.]+)", "step=1,rate=98,830,loss=3", "98,830"),
        (r"resnet,([0-9.]+)", "resnet,1,012,32", "1,012"),
        (r"resnet,([0-9.]+)", "resnet,1,012.4,32", "1,012"),
        (r"rate=([0-9.]+)", "rate=12,84,loss=0.3", "12,84"),
        # Cut by a table, or by a library.
        (r"resnet │ ([0-9.,]+)", "│ resnet │ 183… │", "183…"),
        (r"resnet │ ([0-9.,]+)", "│ resnet │ 1,83… │", "1,83"),
        (r"resnet │ ([0-9.]+)", "│ resnet │ 183.… │", "183.…"),
        (r"resnet +([0-9]+)", "resnet  183...", "183..."),
        (r"resnet ([0-9]+)", "resnet 183...  12 ms", "183..."),
        (r"resnet ([0-9]+)", "resnet 183... | 12 ms", "183..."),
        (RATE, "rate: 183… ok", "183…"),
        (RATE, "rate: 1{,}830.4", "1{,}830.4"),
        (RATE, "rate: ≈ 10⁻³ ms/op", "10⁻"),
        (RATE, "rate: 16x224", "16x224"),
        # Marks for thousands, decimals, powers and fractions that are not read.
        (RATE, "rate: 1`830.4", "1`830.4"),
        (RATE, "rate: 1‘830", "1‘830"),
        (RATE, "rate: 1ʼ830", "1ʼ830"),
        (RATE, "rate: 1·830", "1·830"),
        (RATE, "rate: 1٬830", "1٬830"),
        (RATE, "rate: 12٫5", "12٫5"),
        (RATE, "rate: 1，830", "1，830"),
        (RATE, "rate: 1\u2007830", "1\u2007830"),
        (RATE, "rate: 1&nbsp;830", "1&nbsp;830"),
        (RATE, "rate: 1\\,830", "1\\,830"),
        (RATE, "rate: 10^3", "10^3"),
        (RATE, "rate: 10³", "10³"),
        (RATE, "rate: 1.83**3", "1.83**3"),
        (RATE, "rate: 12½", "12½"),
        # So are all marks that are not those of columns, digits of other scripts, and powers behind a blank.
        (RATE, "rate: 1⋅830", "1⋅830"),
        (RATE, "rate: 1~830", "1~830"),
        (RATE, "rate: 1´830", "1´830"),
        (RATE, "rate: 1'´830", "1'´830"),
        (RATE, "rate: 12⁄5", "12⁄5"),
        (RATE, "rate: 12８3", "12８3"),
        (RATE, "rate: 1,８30", "1,８30"),
        (RATE, "rate: 1.83+03", "1.83+03"),
        (RATE, "rate: 1.83 E+03", "1.83 E+03"),
        (RATE, "rate: 1.83E 3", "1.83E 3"),
        (RATE, "rate: 1.83 D+03", "1.83 D+03"),
        (RATE, "rate: 12img3", "12img3"),
        (r"rate([0-9.]+)", "rate.985", "e.985"),
        (r"(\d+) img/s", "1`830 img/s", "1`830"),
        (r".*([\d.]{3}) img/s", "at 1`830 img/s", "1`830"),
        (r"rate: (.*)", "rate: 12.5 (13)", "12.5 (13)"),
        (r"rate: (\S+)", "rate: fast", "fast"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(pattern: str, output: str, shown: str) -> None:
    with pytest.raises(NoNumberError) as caught:
        read(pattern, output)
    assert shown in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "output", "unit"),
    [
        # The unit of another figure is none of this one's, and neither is a label that has had its number.
        (r"throughput: ([\d.]+)", "latency: 950 us, throughput: 1052", ""),
        (r"throughput: ([\d.]+)", "latency (ms): 1.2, throughput: 833", ""),
        (r'images_per_sec": ([\d.]+)', '{"step_ms": 1.2, "images_per_sec": 833}', ""),
        (r'step_ms": ([\d.]+)', '{"step_ms": 1.2, "images_per_sec": 833}', "ms"),
        (r'p99_us":([\d.]+)', '{"p50_ms":1.2,"p99_us":1234}', "us"),
        (r"p99[ =]([\d.]+)", "Latency (ms): p50 1.2, p99 3.4", "ms"),
        (r"p99=([\d.]+)", "Latency (us): p50=1.2 p99=3.4", "us"),
        (r"\(ms\): [\d.]+ [\d.]+ ([\d.]+)", "t(ms): 1.2 3.4 5.6", "ms"),
        (r"images/sec: ([\d.]+)", "1\timages/sec: 33.1 +/- 0.0 (jitter = 0.0)\t7.765", "images/sec"),
        # What it scatters by stands between a number and its unit.
        (r"time: ([\d.]+)", "time: 1.2 ± 0.04 ms", "ms"),
        (r"time: ([\d.]+)", "time: 950 +/- 12.1 µs", "µs"),
        (r"time: ([\d.]+)", "time: 950 (± 12) us", "us"),
        (r"took ([\d.]+)", "took 12-13 ms", "ms"),
        # So do the other figures of a list, but no time after a dash, and no share.
        (r"avg/max: ([\d.]+)", "avg/max: 1.2/1.5 ms", "ms"),
        (r"p50: ([\d.]+)", "p50: 1.2 / 1.5 / 1.8 ms", "ms"),
        (r"img/s: ([\d.]+)", "img/s: 812.3 - 1.2 s elapsed", "img/s"),
        (RATE, "rate: 12.5 (-3.2%)", ""),
        (r"took ([\d.]+)", "took 1.2 ± 3% ms", "ms"),
        (r"took ([\d.]+)", "took 1.2 sec/100 images", "sec"),
        (r"took ([\d.]+)", "took 1.5 hrs", "hrs"),
        (r"took ([\d.]+)", "took 1.5\u00a0ms", "ms"),
        (r"in ([\d.]+)", "Predicted in 985.1 milli-seconds.", "milli-seconds"),
        (r"耗时([\d.]+)", "耗时950毫秒", "毫秒"),
        (r"avg=([\d.]+)", "clat (nsec): min=900, max=20k, avg=1200.20", "nsec"),
        (r"avg ([\d.]+)", "img/s: avg 812.3 min 790.1 max 830.2", "img/s"),
        # A time that stands next to a rate is not in the rate's unit.
        (r"latency: ([\d.]+)", "img/s: 100.0  latency: 80.00", ""),
        (r"latency: ([\d.]+)", "tokens/sec: 1300, latency: 7.69", ""),
        (r"time: ([\d.]+)", "images/sec: 100 time: 10", ""),
        (r"p99: ([\d.]+)", "req/s: 833 p99: 1.2", ""),
        (r"p99=([\d.]+)", "requests/s=833 p50=1.1 p99=1.2", ""),
        (r"lat ([\d.]+)", "items/sec 833 lat 1.2", ""),
        (r"std: ([\d.]+)", "img/s: 833 std: 1.2", ""),
        (r"max ([\d.]+)", "img/s: avg 812.3 min 790.1 max 830.2", "img/s"),
        (r"min: ([\d.]+)", "throughput (img/s): mean: 812.3, min: 790.1", "img/s"),
        (r"p50 ([\d.]+)", "throughput (req/s): p50 833, p99 790", "req/s"),
        (r"p99 ([\d.]+)", "throughput (req/s): p50 833, p99 790", "req/s"),
        (r"p50 ([\d.]+)", "Throughput (images/s): avg 99.9, p50 100.1", "images/s"),
        (r"lat ([\d.]+)", "Throughput (images/s): avg 99.9, lat 1.2", ""),
        (r"lat ([\d.]+)", "ms/step: mean lat 1.2", "ms/step"),
        (r"avg ([\d.]+)", "avg 1.2 / min 0.9 / max 1.5", ""),
        (r"avg: ([\d.]+)", "FPS avg: 102.3 Min: 71.2 Max: 120.1", ""),
        (r"Avg: ([\d.]+)", "Avg: 12 Min: 1", ""),
        (r"Avg ([\d.]+)", "Avg 12 Min 1 Max 30", ""),
        (r"in ([\d.]+)", "in 12 Min, 3 images each", "Min"),
        (r"took ([\d.]+)", "took 1.2 min", "min"),
        (r": ([\d.]+)", "total time in minutes: 1.105", "minutes"),
        (r": ([\d.]+)", "elapsed seconds: 58.1", "seconds"),
        (r": ([\d.]+)", "833 images in 12 seconds: 69.4", ""),
        (r": ([\d.]+)", "10 images/sec: 33.2", "images/sec"),
        (r"_msec: ([\d.]+)", "step_msec: 58.1", "msec"),
        (r"sec: ([\d.]+)", "images_per_sec: 58.1", ""),
        (r": ([\d.]+)", "samples per seconds: 58.1", ""),
        (RATE, "rate: 833 QPS", "QPS"),
        (RATE, "rate: 1.2k QPS", "k QPS"),
        (RATE, "rate: 1.052 KQPS", "KQPS"),
        (RATE, "rate: 12 MS", "MS"),
    ],
)  # fmt: skip
def test_a_unit_belongs_to_its_number(pattern: str, output: str, unit: str) -> None:
    assert read(pattern, output).unit == unit


@pytest.mark.parametrize(
    ("pattern", "output", "values"),
    [
        (r"([\d.]+) ms", "latency 13.0 ms ± 0.5 ms\nlatency 12.0 ms ± 0.4 ms", (13.0, 12.0)),
        (r"([\d.]+) ms", "12.3 ms (±0.4 ms)", (12.3,)),
        (r"([\d.]+) ms", "12.3 ms (std 0.4 ms)", (12.3,)),
        (r"([\d.]+) ms", "12.3 ms +/- 0.0 ms", (12.3,)),
        (r"([\d.]+)", "26.0 +-0.8", (26.0,)),
        (r"([\d.]+)", "1.2e+03 ± 12 ± 3%", (1200.0,)),
        (r"=([\d.]+)", "mean=12.3 std=0.4", (12.3,)),
        (r": ([\d.]+)", "{'mean': 12.3, 'std': 0.4}", (12.3,)),
        (r"([\d.]+) [mµ]s", "12.3 ms ± 45.6 µs per loop (mean ± std. dev. of 7 runs)", (12.3,)),
        (r"([\d.]+)s", "took 1m12.5s ± 0.4s", (72.5,)),
        # Steps, and a summary below them.
        (r"([\d.]+) ms", "step 12 ms\nstep 13 ms\n12.5 ± 0.4 ms", (12.0, 13.0)),
        # The pattern names it.
        (r"± ([\d.]+)", "latency 13.0 ms ± 0.5 ms", (0.5,)),
        (r"\+/- ([\d.]+)", "13.0 +/- 0.5", (0.5,)),
        (r"\(std ([\d.]+)", "12.3 ms (std 0.4 ms)", (0.4,)),
        # Of no number.
        (r"([\d.]+) us", "bench: Mean +- std dev: 985 us +- 12 us", (985.0,)),
        (r"([\d.]+)$", "Time (mean ± σ): 12.3", (12.3,)),
        (r": ([\d.]+)", "resnet50 std: 12.3\nfp16, std: 12.4", (12.3, 12.4)),
        (r"([\d.]+) ms", "4 +--+ 12 ms", (12.0,)),
        # A word, not what numbers scatter by.
        (r"([\d.]+) items/s", "1000 std 33.5 items/s\n1000 boost 40.5 items/s", (33.5, 40.5)),
        (r"([\d.]+) fps", "2026-01-01 std: 33.5 fps", (33.5,)),
        (r"([\d.]+)", "12.3 ms, std 450 µs", (12.3,)),
    ],
)
def test_the_spread_of_a_number_is_not_measured(pattern: str, output: str, values: tuple[float, ...]) -> None:
    reading = read(pattern, output)
    assert (reading.values, reading.n_left_out) == (values, 0)


@pytest.mark.parametrize(
    ("pattern", "output", "mark"),
    [
        (r"([\d.]+) images/sec", "Throughput: 512.3 ± 4.2 images/sec", "±"),
        (r"([\d.]+)\s+ops/s", "Bench.run  thrpt    5  934.567 ± 12.345  ops/s", "±"),
        (r"([\d.]+) seconds time", "2.0012 +- 0.0123 seconds time elapsed ( +- 0.61% )", "+-"),
        (r"([\d.]+) ms", "warm-up: 20 ms\nlatency 13.0 ± 0.5 ms", "±"),
        (r".*[ (]([\d.]+) ms", "12.3 ms (std 0.4 ms)", "std"),
    ],
)
def test_a_pattern_that_finds_the_spread_alone_is_told_of_it(pattern: str, output: str, mark: str) -> None:
    with pytest.raises(NoNumberError, match=f"behind '{re.escape(mark)}', the spread of another number") as caught:
        read(pattern, output)
    assert f"let the pattern match the number before '{mark}'" in caught.value.hint


def test_a_median_is_as_fine_as_the_number_in_the_middle() -> None:
    mixed = read(r"(\d+)m?s/step", "985ms/step\n1s/step\n1s/step")
    assert (mixed.values, mixed.resolution) == ((985.0, 1000.0, 1000.0), 1000.0)
    assert read(r"(\d+)m?s/step", "2s/step\n985ms/step\n986ms/step\n987ms/step").in_unit("ms/step").resolution == 1.0


def test_a_dot_means_one_thing_in_an_output() -> None:
    for output in (
        "rate: 987.654\nrate: 1.234.567",
        "rate: 1.234.567\nrate: 987.654",
        "rate: 1.234\nrate: 2.345,6",
        "rate: 987,654\nrate: 1.234,567",
    ):
        with pytest.raises(NoNumberError, match="a dot parts thousands in one of them"):
            read(r"rate: ([\d.,]+)", output)
    assert read(RATE, "rate: 1.234\nrate: 987.654").values == (1.234, 987.654)
    assert read(RATE, "rate: 1,234.567\nrate: 987.654").values == (1234.567, 987.654)
    assert read(RATE, "rate: 1.234.567\nrate: 2.345.678").values == (1234567.0, 2345678.0)


@pytest.mark.parametrize(
    ("text", "unit", "is_a_time"),
    [
        ("12 s^-1", "/s", False),
        ("12 s⁻¹", "/s", False),
        ("12 img s⁻¹", "img/s", False),
        ("12 img·s-1", "img/s", False),
        ("12 img*s**-1", "img/s", False),
        ("12 s", "s", True),
        ("12 s-15 s", "s", True),
        ("12 img/s/gpu", "img/s", False),
        ("12 s/step/GPU", "s/step", True),
        ("12 days", "days", True),
    ],
)
def test_a_rate_and_its_time_are_told_apart(text: str, unit: str, is_a_time: bool | None) -> None:
    assert read(RATE, f"rate: {text}").unit == unit
    assert is_time(unit) is is_a_time


def test_bits_are_no_bytes() -> None:
    for some, other in (("8 Mb/s", "1 MB/s"), ("8 Mbps", "1 MBps"), ("8 Gb", "1 GB")):
        with pytest.raises(NoNumberError, match="different units"):
            read(RATE, f"rate: {some}\nrate: {other}")
    assert read(RATE, "rate: 8 Mb/s\nrate: 900 kb/s").values == pytest.approx((8.0, 0.9))
    for some, other in (("512 Gi", "1 Ti"), ("714MiB/s", "1GiB/s"), ("714 kiB/s", "1 MiB/s"), ("714MiBps", "1GiBps")):
        assert read(RATE, f"rate: {some}\nrate: {other}").values[1] == 1024.0
    assert read(RATE, "rate: 512 Mitems/s\nrate: 1 Gitems/s").values == (512.0, 1000.0)


def test_units_are_the_same_in_capitals() -> None:
    assert read(RATE, "rate: 1.052 KQPS").in_unit("QPS").values == pytest.approx((1052.0,))
    assert read(RATE, "rate: 1.052 kqps").in_unit("QPS").values == pytest.approx((1052.0,))
    assert read(RATE, "rate: 1200 US").in_unit("ms").values == pytest.approx((1.2,))
    assert read(RATE, "rate: 1.5 GFLOPs").in_unit("MFLOPS").values == pytest.approx((1500.0,))


@pytest.mark.parametrize(
    ("pattern", "output", "value", "resolution"),
    [
        (r"real\s+(\d+)", "real\t1m2.5s", 62.5, 0.1),
        (r"real\s+\d+m([\d.]+)s", "real\t1m2.512s", 62.512, 0.001),
        (r"real\s+\d+m([\d,]+)s", "real\t0m58,2s", 58.2, 0.1),
        (r"e: ([\d.]+)", "e: 1 min 2 s", 62.0, 1.0),
        (r"e: ([\d.]+)", "e: 1 hour, 2 minutes", 3720.0, 60.0),
        (r"e: ([\d.]+)", "e: 5d 3h", 442800.0, 3600.0),
        (r"e: ([\d.]+)", "e: 1 minute and 2.5 seconds", 62.5, 0.1),
        (r"e: ([\d.]+)", "e: 1 hour, 1 minute, and 2 seconds", 3662.0, 1.0),
        (r"e: ([\d.]+)", "e: 1m:02.5s", 62.5, 0.1),
        (r"e:([\d.]+)", "e:1 min 2 s", 62.0, 1.0),
        (r"([\d.]+) s", "e:1 min 2 s", 62.0, 1.0),
        (r":([\d.]+)elapsed", "0.98user 0.12system 1:02.30elapsed 98%CPU", 62.3, 0.01),
        (r":([\d.]+)elapsed", "0.98user 0.12system 0:59.10elapsed 98%CPU", 59.1, 0.01),
        (r":([\d.]+)elapsed", "1:00:02elapsed", 3602.0, 1.0),
        (r"e: (\S+)", "e: 1:02.3s", 62.3, 0.1),
        (r"e: (.*)", "e: 0:01:02.34", 62.34, 0.01),
        (r"e: (.*)", "e: 1 days 00:00:52.1", 86452.1, 0.1),
        # A fraction behind two parts is one of seconds.
        (r"m:ss\): (\S+)", "Elapsed (wall clock) time (h:mm:ss or m:ss): 0:01.23", 1.23, 0.01),
        (r"m:ss\): (\S+)", "Elapsed (wall clock) time (h:mm:ss or m:ss): 1:00:02", 3602.0, 1.0),
        (r"took ([\d:.]+)", "took 1:02.3", 62.3, 0.1),
        (r"PT(?:\d+M)?([\d.]+)S", "PT59.1S", 59.1, 0.1),
        (r"PT(?:\d+M)?([\d.]+)S", "PT1M2.3S", 62.3, 0.1),
        (r"PT([\d.]+)", "took PT1M2.5S", 62.5, 0.1),
        (r"PT(\d+)", "PT2M", 120.0, 60.0),
        (r"'([\d.]+)\"", "1'02.3\"", 62.3, 0.1),
        (r"m([\d.]+)$", "1m2.3", 62.3, 0.1),
        (r"m([\d.]+)$", "real 0m59.1", 59.1, 0.1),
        (r"m:([\d.]+)$", "time: 1m:2.3", 62.3, 0.1),
        (r"e: (\S+)", "e: 1m2.3", 62.3, 0.1),
        # Other languages.
        (r"([\d.]+) sec", "2 min. 2 sec.", 122.0, 1.0),
        (r"([\d.]+) Sek", "2 Min. 2 Sek.", 122.0, 1.0),
        (r"([\d.]+) seg", "2 minutos y 2.3 segundos", 122.3, 0.1),
        (r"([\d.]+) сек", "2 мин 2 сек", 122.0, 1.0),
        (r"([\d.]+)秒", "2分2.3秒", 122.3, 0.1),
        (r"([\d.]+) second", "1 ora e 2 secondi", 3602.0, 1.0),
        (r"e: ([\d.]+)", "e: 4 ore 5 minuti", 14700.0, 60.0),
    ],
)
def test_a_duration_in_parts_is_one_number(pattern: str, output: str, value: float, resolution: float) -> None:
    reading = read(pattern, output)
    assert reading.values == pytest.approx((value,))
    assert (reading.resolution, reading.unit) == (pytest.approx(resolution), "s")


@pytest.mark.parametrize(
    ("patterns", "output", "value"),
    [
        # Rates, and a minimum, next to a time.
        ([r"img/sec: ([\d.]+)"], "img/sec: 100, ms: 12", 100.0),
        ([r"ms: ([\d.]+)"], "img/sec: 100, ms: 12", 12.0),
        ([r"images/sec=([\d.]+)"], "images/sec=484 ms=33", 484.0),
        ([r"ms=([\d.]+)"], "images/sec=484 ms=33", 33.0),
        ([r"per_sec': ([\d.]+)"], "{'img_per_sec': 484, 'ms': 33}", 484.0),
        ([r"ms': ([\d.]+)"], "{'img_per_sec': 484, 'ms': 33}", 33.0),
        ([r"second: ([\d.]+)"], "items_per_second: 100, ms: 12", 100.0),
        ([r"ms: ([\d.]+)"], "items per second: 100, ms: 12", 12.0),
        ([r'sec": ([\d.]+)'], '{"steps_per_min": 484, "sec": 33.1}', 33.1),
        ([r"ex/sec ([\d.]+)"], "ex/sec 100 msec 12", 100.0),
        ([r"msec ([\d.]+)"], "ex/sec 100 msec 12", 12.0),
        ([r"sec=([\d.]+)"], "min=5,sec=3", 3.0),
        ([r"min=([\d.]+)"], "min=5,sec=3", 5.0),
        # Sizes of models.
        ([r"30m:([\d.]+)", r":([\d.]+)$", r":([\d.]+)"], "yolo 30m:12.5\n", 12.5),
        ([r"30m([\d.]+)", r"m([\d.]+)$"], "x 30m12.5", 12.5),
        ([r"m ([\d.]+)", r" ([\d.]+)$"], "size 50m 12.5", 12.5),
        ([r"m ([\d.]+)", r" ([\d.]+)$"], "50m 12.5", 12.5),
        # Steps and epochs before a time.
        ([r"1:([\d.]+)", r":([\d.]+)ms"], "epoch 1:34ms", 34.0),
        ([r"12:([\d.]+)", r":([\d.]+)ms"], "step 12:34.5ms", 34.5),
        ([r"1:([\d.]+)", r":([\d.]+)s$"], "epoch 1:34.5s", 34.5),
        # Two times next to each other.
        ([r"(\d+)s -", r"- (\d+)s"], "Epoch 1 - 5s - 12ms - loss: 0.3", 5.0),
        ([r"(\d+)ms", r"- (\d+)ms"], "Epoch 1 - 5s - 12ms - loss: 0.3", 12.0),
        ([r", (\d+)ms"], "time: 5s, 12ms", 12.0),
        ([r"time: (\d+)"], "time: 5s, 12ms", 5.0),
        ([r"(\d+)ms avg"], "fwd: 2s, 15ms avg", 15.0),
        ([r"(\d+) us"], "took 3 s: 250 us each", 250.0),
        ([r"(\d+) µs"], "took 3 s, 250 µs each", 250.0),
        ([r"(\d+) s"], "took 3 min - 250 s", 250.0),
        ([r"(\d+) min"], "took 3 min - 250 s", 3.0),
        ([r"max\]\s+(\d+)"], "[min, mean, max]  1s, 200ms, 2s", 1.0),
        ([r", (\d+)ms"], "[min, mean, max]  1s, 200ms, 2s", 200.0),
        ([r"(\d+) ms"], "took 1 sec : 12 ms", 12.0),
        ([r"(\d+) min"], "4 ore 5 min", 5.0),
    ],
)
def test_two_figures_next_to_each_other_are_no_duration(patterns: list[str], output: str, value: float) -> None:
    for pattern in patterns:
        assert read(pattern, output).values == (value,)


def test_times_of_a_progress_bar_are_no_durations() -> None:
    assert read(r"(\d+)ms/step", "100/100 1s 12ms/step - loss: 0.2").values == (12.0,)
    assert read(r"(\d+)ms/step", "100/100 1s, 12ms/step - loss: 0.2").values == (12.0,)
    assert read(r"([\d.]+)ms", "100/100 - 1s - 12ms/step").values == (12.0,)
    assert read(r"took ([\d.]+)", "5 min of warm-up, took 3.2 s").values == (3.2,)
    assert read(r"time: ([\d.]+)", "time: 12ms, loss 0.3").values == (12.0,)
    assert read(r"seconds: ([\d.]+)", "minutes: 2.5, seconds: 150").values == (150.0,)
    assert read(r"nanos: (\d+)", "Duration { secs: 0, nanos: 12 }").values == (12.0,)
    assert read(r"(\d+) ms", "12.5 s, 980 ms").values == (980.0,)
    assert read(r"ms: (\d+)", "sec: 2, ms: 2012").values == (2012.0,)
    assert read(r"([\d.]+) s", "took 3.2 s").values == (3.2,)
    assert read(r"m=(\d+)", "m=12").values == (12.0,)
    assert read(r"step \d+:([\d.]+)", "step 10:52.1 img/s").values == (52.1,)
    assert read(r"8:([\d.]+)", "8:152.5").values == (152.5,)


@pytest.mark.parametrize(
    ("pattern", "output", "word"),
    [
        (r"throughput\D+([\d.]+)", "throughput (bs128): 833", "bs128"),
        (r"latency\D+([\d.]+)", "latency p99: 12.5", "p99"),
        (r"rate.*?(\d+)", "rate of fp16: 833", "fp16"),
    ],
)
def test_a_number_in_a_name_is_refused(pattern: str, output: str, word: str) -> None:
    with pytest.raises(NoNumberError, match=f"of '{word}', which is part of a name"):
        read(pattern, output)
    assert read(r"p(\d+)", "p99: 12.5").values == (99.0,)  # the pattern names what stands before it


def test_a_pattern_without_a_group_is_told_of_it() -> None:
    with pytest.raises(NoNumberError, match="not a number") as caught:
        read(r"rate=[0-9.]+", "rate=12.3")
    assert "put parentheses" in caught.value.hint


def test_without_a_match_the_last_line_is_shown() -> None:
    with pytest.raises(NoNumberError, match=r"the last line is '100%\| 20/20 \[1\.18s/it\]'"):
        read("([0-9.]+)it/s", "\r  0%| 0/20\r100%| 20/20 [1.18s/it]\n\n")
    with pytest.raises(NoNumberError, match="it printed nothing"):
        read("x", "")


@pytest.mark.parametrize(
    ("pattern", "output", "changed"),
    [
        (r"throughput: ([0-9.]+)", "Throughput: 12.5 FPS", r"(?i)throughput: ([0-9.]+)"),
        (r"Throughput: ([0-9.]+)", "Throughput:     12.5 FPS", r"Throughput:\s*([0-9.]+)"),
        (r"throughput: ([0-9.]+)", "Throughput:12.5 FPS", r"(?i)throughput:\s*([0-9.]+)"),
        (r"Throughput: \([0-9.]*\)", "Throughput: 12.5", "Throughput: ([0-9.]*)"),
        (r"/Throughput: ([0-9.]+)/", "Throughput: 12.5", "Throughput: ([0-9.]+)"),
        (r"^Throughput: ([0-9.]+)$", "Throughput: 1.25e+01 \r\n", r"^Throughput: ([0-9.]+)"),
        (r"([0-9.]+)ms/step", "Throughput: 12.5us/step", r"([0-9.]+)(?:ns|us|µs|ms|s)/step"),
    ],
)
def test_a_pattern_that_nearly_matches_is_told_how_it_would(pattern: str, output: str, changed: str) -> None:
    with pytest.raises(NoNumberError) as caught:
        read(pattern, output)
    assert caught.value.hint.endswith(f"is matched by --metric-regex '{changed}'")
    assert read(changed, output).values == (12.5,)
    with pytest.raises(NoNumberError) as caught:
        read("rate: ([0-9.]+)", output)
    assert caught.value.hint == ""


def test_lines_are_those_that_a_terminal_shows() -> None:
    assert read(r"^rate (\d+)$", "rate 5\r\nrate 6\r\n").values == (5.0, 6.0)
    assert read(r"^(\d+)it/s$", "1it/s\r2it/s\r3it/s\n").values == (1.0, 2.0, 3.0)
    assert plain("a\x1b[0m\x1b]0;title\x07b\x08\x08c") == "ab\nc"


@pytest.mark.parametrize(
    ("output", "values", "unit"),
    [
        ("1ms/step 917us/step", (1.0, 0.917), "ms/step"),
        ("12.5 s 980 ms", (12.5, 0.98), "s"),
        ("980it/s 1.83kit/s", (980.0, 1830.0), "it/s"),
        ("980 1.83k 1.2M", (980.0, 1830.0, 1.2e6), ""),
        ("12.5 J 900 mJ", (12.5, 0.9), "J"),
        ("12.5 Joules 0.01 kJ", (12.5, 10.0), "Joules"),
        ("12W 900mW", (12.0, 0.9), "W"),
        ("4 mJ/item 0.01 J/item", (4.0, 10.0), "mJ/item"),
        ("1.2 Mpps 980 Kpps", (1.2, 0.98), "Mpps"),
        ("12 Mcycles 900 kcycles", (12.0, 0.9), "Mcycles"),
        ("980 B/s 1.2 MB/s 2 KiB/s", (980.0, 1.2e6, 2048.0), "B/s"),
        ("12.5 images/sec 1.5k images/sec", (12.5, 1500.0), "images/sec"),
        ("60it/s 60it/min", (60.0, 1.0), "it/s"),
        ("900 microsec 1 millisec", (900.0, 1000.0), "microsec"),
        ("950 µsec 1.2 msec", (950.0, 1200.0), "µsec"),
        ("1.2 Mio 980 Tsd", (1.2, 0.98), "Mio"),
        ("1.2 crore 98 lakh", (1.2, 0.98), "crore"),
        ("1.2bn 980mn", (1.2, 0.98), "bn"),
        ("3 images per second 4 images/s", (3.0, 4.0), "images per second"),
    ],
)
def test_numbers_of_a_run_are_in_one_unit(output: str, values: tuple[float, ...], unit: str) -> None:
    reading = read(r"(?<![\w./])[0-9.]+", output)
    assert reading.values == pytest.approx(values)
    assert reading.unit == unit


@pytest.mark.parametrize(
    ("pattern", "output", "values"),
    [
        (r"lat: ([\d.]+)", "lat: 1.2 [ms]\nlat: 917 [us]", (1.2, 0.917)),
        (r"avg=\s*([\d.]+)", "lat (msec): min=1, avg= 1.2\nlat (usec): min=900, avg=917", (1.2, 0.917)),
        (r"lat_..= ([\d.]+)", "lat_ms= 1.2\nlat_us= 917", (1.2, 0.917)),
        (r'"lat_..": ([\d.]+)', '"lat_ms": 1.2, "lat_us": 917', (1.2, 0.917)),
        (r"^([\d.]+)", "1.2 M\n917 K", (1.2, 0.917)),
        (r"^([\d.]+)", "1.2 million rows\n917 thousand rows", (1.2, 0.917)),
        (r"^([\d.]+)", "1.2 Gbps\n917 Mbps", (1.2, 0.917)),
        (r"^([\d.]+)", "1 Gbit/s\n900 Mbits/s", (1.0, 0.9)),
        (r"^([\d.]+)", "5 image/s\n6 images/s", (5.0, 6.0)),
    ],
)
def test_units_stand_in_many_places(pattern: str, output: str, values: tuple[float, ...]) -> None:
    assert read(pattern, output).values == pytest.approx(values)


@pytest.mark.parametrize(
    ("pattern", "output"),
    [
        (r"min/avg/max: [\d.]+/([\d.]+)/", "img/s min/avg/max: 1200.1/1500.2/1600.2"),
        (r"overhead : ([\d.]+)", "QPS w/o loadgen overhead : 123.45"),
        (r"rate: ([\d.]+)", "[10:11:12,345] rate: 1830.4"),
    ],
)
def test_what_is_no_unit_of_a_time_is_not_taken_for_one(pattern: str, output: str) -> None:
    assert is_time(read(pattern, output).unit) is not True


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("3.20s/it", "1.51it/s", "one the inverse of the other"),
        ("12ms", "12", "unit ms, and others have none"),
        ("12img/s", "12tok/s", "img/s and tok/s"),
    ],
)
def test_a_unit_of_another_kind_is_refused(one: str, other: str, said: str) -> None:
    for output in (f"{one}\n{other}", f"{other}\n{one}"):
        with pytest.raises(NoNumberError, match="different units"):
            read(r"^[0-9.]+", output)
    with pytest.raises(NoNumberError, match=said):
        read(r"^[0-9.]+", one).in_unit(read(r"^[0-9.]+", other).unit)


BAR = "{n}/60 [00:12<00:00, {rate}]"


def bar(*rates: str) -> str:
    return "\r".join(BAR.format(n=n, rate=rate) for n, rate in enumerate(rates))


def test_the_half_of_a_bar_that_has_the_inverse_unit_is_not_lost() -> None:
    for pattern, field in (("([0-9.]+)it/s", "{rate_noinv_fmt}"), ("([0-9.]+)s/it", "{rate_inv_fmt}")):
        with pytest.raises(NoNumberError, match="alone, and others are in") as caught:
            read(pattern, bar("1.05it/s", "1.10s/it", "1.02it/s", "1.08s/it"))
        assert field in caught.value.hint
    with pytest.raises(NoNumberError, match="others are in s/img: '2/60"):
        read("([0-9.]+)img/s", bar("?img/s", "1.10s/img", "1.12s/img", "1.08s/img", "1.02img/s"))
    with pytest.raises(NoNumberError, match="others are in s/img: '2/60"):  # of the unit " img"
        read("([0-9.]+) img/s", bar("1.05 img/s", "1.03 img/s", "1.10s/ img", "1.12s/ img"))


@pytest.mark.parametrize(
    ("pattern", "rates", "other"),
    [
        ("([0-9.]+)it/s", ("980it/s", "1.05kit/s", "990it/s", "1.02kit/s"), "kit/s"),
        ("([0-9.]+)kit/s", ("980it/s", "1.05kit/s", "990it/s", "1.02kit/s", "960it/s"), "it/s"),
        (r"(\d+)ms/step", ("1ms/step", "917us/step", "1ms/step"), "us/step"),
        (r"took ([\d.]+) s", ("took 1.1 s", "took 960 ms", "took 1.2 s"), "ms"),
        (r"([\d.]+) MB/s", ("1.1 MB/s", "1.05 MB/s", "960 KB/s", "980 KB/s"), "KB/s"),
    ],
)
def test_the_half_of_the_numbers_that_has_another_prefix_is_not_lost(
    pattern: str, rates: tuple[str, ...], other: str
) -> None:
    """The pattern would match the slow ones alone, whatever the setting."""
    with pytest.raises(NoNumberError, match=f"alone, and others are in {other}: ") as caught:
        read(pattern, "\n".join(rates))
    assert caught.value.hint.startswith("let the pattern match both, such as ([0-9.]+) *(?:")
    far = [re.sub("^(took )?[0-9.]+", r"\g<1>77", each) if each.endswith(other) else each for each in rates]
    assert read(pattern, "\n".join(far)).values  # of something else


@pytest.mark.parametrize(
    ("words", "is_a_time"),
    [
        *((word, True) for word in ('"sec_per_batch":', "ms_per_step", "sec per step", "IterTime", "timePerStep")),
        *((word, True) for word in ("seconds per image", "Wall clock:", "ITL:", "BatchTime=", "time per step")),
        *((word, False) for word in ("wps=", "hz:", "images per sec per gpu", "img/sec per GPU", "steps per second")),
        *((word, None) for word in ("time steps", "hits per request", "epochs", "cps per unit")),
    ],
)
def test_labels_name_times_and_rates(words: str, is_a_time: bool | None) -> None:
    assert names_time(words) is is_a_time


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        (r"images/sec: (\d+\.\d+)", ("10\timages/sec: 985.1\tx", "20\timages/sec: 1,140.3\tx")),
        (r"rate: (\d+) img/s", ("rate: 985 img/s", "rate: 1,012 img/s")),
        (r"rate: (\d+) img/s", ("rate: 985 img/s", "rate: 1.02k img/s")),
        (r"= ([\d.]+) examples/sec", ("= 985.1 examples/sec", "= 1.012e+03 examples/sec")),
        (r"rate: (\d+\.\d+)$", ("rate: 985.1", "rate: 1012", "rate: 1013")),
        (r"in ([\d.]+)s$", ("in 58.2s", "in 1m2.1s")),
        (r"in ([\d.]+)s$", ("in 58.2s", "in 1:02s")),
        (r"([0-9.]+) tok/s", ("980 tok/s", "1.02k tok/s")),
        (r"([0-9.]+)k tok/s", ("1.02k tok/s", "980 tok/s", "970 tok/s")),
    ],
)
def test_the_half_of_the_numbers_that_has_another_form_is_not_lost(pattern: str, lines: tuple[str, ...]) -> None:
    with pytest.raises(NoNumberError, match=r"matches numbers such as .*, and not the one in") as caught:
        read(pattern, "\n".join(lines))
    assert caught.value.hint == r"let the parentheses match a number in any form, such as (\S+)"


@pytest.mark.parametrize(
    ("pattern", "lines", "values"),
    [
        (r"rate: (\d+\.\d+)$", ("rate: 985.1", "rate: 990", "rate: 995.4"), (985.1, 995.4)),
        (r"rate: (\d+\.\d+)$", ("rate: 985.1", "rate: 1012"), (985.1,)),
        (r"step 100 rate: ([\d.]+)", ("step 100 rate: 985.1", "step 200 rate: 1012", "step 300 rate: 1,013"), (985.1,)),
        (r"batch 32: ([\d.]+)", ("batch 32: 985.1", "batch 1: 512", "batch 8: 500"), (985.1,)),
        (r"loss: (\d\.\d+)", ("loss: 2.5", "loss: 12.5", "loss: 3"), (2.5,)),
        (r"(\d+\.\d+)", ("step 1 loss 2.5", "step 2 loss 2.4"), (2.5, 2.4)),
        (r"rate: (\d+\.\d+)", ("rate: 0", "rate: 0", "rate: 985.1"), (985.1,)),
    ],
)
def test_what_a_pattern_leaves_out_on_purpose_is_no_lost_half(
    pattern: str, lines: tuple[str, ...], values: tuple[float, ...]
) -> None:
    assert read(pattern, "\n".join(lines)).values == values


PRINTED = [
    # What programs print under one setting and under another, and what of the first's unit the second is.
    (r"Throughput:\s+([0-9.]+)", "[ INFO ] Throughput:   1,234.5 FPS", "[ INFO ] Throughput:   987.6 FPS", 987.6),
    (r"Median: ([0-9.]+)", "  Median: 985.12 us\n  IQR:    0.12 us (12 to 13)", "  Median: 1.01 ms", 1010.0),
    (r"IOPS=([0-9.]+)", "read: IOPS=12.3k, BW=48.1MiB/s (50.4MB/s)", "read: IOPS=980, BW=4.1MiB/s", 0.98),
    (r"Latency\s+([0-9.]+)", "  Latency     1.23ms   2.34ms  45.6ms", "  Latency   985.12us   2.3ms  45.6ms", 0.98512),
    (
        r"best of \d+: ([0-9.]+)",
        "5 loops, best of 5: 23.4 msec per loop",
        "1 loop, best of 5: 1.02 sec per loop",
        1020.0,
    ),
    (
        r"^([0-9.]+)",
        "12.3 ms ± 45.6 µs per loop (mean ± std. dev.)",
        "1.23 s ± 12 ms per loop (mean ± std. dev.)",
        1230.0,
    ),
    (r"per_second=([0-9.]+)", "BM 12 ns items_per_second=12.3M/s", "BM 12 ns items_per_second=980.2k/s", 0.9802),
    (r"time:\s+\[\S+ \S+ ([0-9.]+)", "time:   [12.3 ms 12.4 ms 12.5 ms]", "time:   [985 µs 990 µs 997 µs]", 0.99),
    (r"([0-9.,]+) msec task", "1,234.56 msec task-clock", "987.65 msec task-clock", 987.65),
    (r"Executed in\s+([0-9.]+)", "Executed in   12.34 secs    fish", "Executed in  985.12 millis    fish", 0.98512),
    (
        r"avg=([0-9.e+]+)",
        "min=11000 max=13000 avg=12345.6 std=123",
        "min=1e+06 max=2e+06 avg=1.23456e+06 std=1",
        1234560.0,
    ),
]


@pytest.mark.parametrize(("pattern", "first", "second", "value"), PRINTED, ids=[each[1].split()[0] for each in PRINTED])
def test_programs_that_change_their_unit_are_compared(pattern: str, first: str, second: str, value: float) -> None:
    assert read(pattern, second).in_unit(read(pattern, first).unit).values[-1] == pytest.approx(value)


def test_a_bound_is_no_number() -> None:
    """Programs print it of what is too fast for their digits."""
    for text in ("t: <1 ms", "t: < 1 ms", "t: ≤1 ms", "t: >1 ms"):
        for pattern in (r"t: (.*) ms", r"t: \D*(\d+) ms"):
            with pytest.raises(NoNumberError, match="1', which is a bound and no number"):
                read(pattern, text)
    for text in ("t: >= 1 ms", "t: <= 1 ms", "t: less than 1 ms", "t: at most 1 ms"):
        with pytest.raises(NoNumberError, match="1', which is a bound and no number"):
            read(r"t: .*?([0-9.]+)", text)
    for pattern, text in (
        (r"% <= ([0-9]+) milli", "99.31% <= 12 milliseconds"),
        (r"([0-9]+) milli", "99.31% <= 12 milliseconds"),
        (r"resnet > ([0-9]+)", "resnet > 12 ms"),
        (r"^> ([0-9]+)", "> 12 ms"),
    ):
        assert read(pattern, text).values == (12.0,)
    assert read(r"(<[0-9]+>)", "<12>").values == read(r"=> (\d+)", "x => 12").values == (12.0,)
    assert read(r"<rate>([0-9]+)<", "<rate>12</rate>").values == (12.0,)


@pytest.mark.parametrize(
    ("output", "pattern", "values"),
    [
        # A start is slow, a bar around this one is of something else, and so is a line that the pattern is not of.
        (bar("3.20s/it", "1.51s/it", "1.2it/s", "1.9it/s", "1.9it/s"), "([0-9.]+)it/s", (1.2, 1.9, 1.9)),
        (bar("20.1it/s", "5.20s/it", "20.3it/s"), "([0-9.]+)it/s", (20.1, 20.3)),
        ("train: 1.2it/s\neval: 1.1s/it\ntrain: 1.3it/s", "train: ([0-9.]+)it/s", (1.2, 1.3)),
        ("10ms/step\n0.9step/s\n11ms/step", "([0-9.]+)ms/step", (10.0, 11.0)),
        ("1s 1.1s/step\n1s 0.9step/s - 3ms/step\n", "([0-9.]+)ms/step", (3.0,)),
        ("1.1 s\n0.9 1/s", "([0-9.]+) s", (1.1,)),
        ("latency: 950 ms\nTotal: 1.2 s", "([0-9.]+) ms", (950.0,)),
    ],
)
def test_other_lines_than_those_of_a_pattern_may_have_any_unit(
    output: str, pattern: str, values: tuple[float, ...]
) -> None:
    assert read(pattern, output).values == values


@pytest.mark.parametrize(
    "text",
    [
        *["np.float64(12.3)", "float32(12.3)", "jnp.float32(12.3)", "numpy.float64(1.23e+1)"],
        *["tf.Tensor(12.3, shape=(), dtype=float32)", "<tf.Tensor: shape=(), dtype=float32, numpy=12.3>"],
        *["tensor(12.3)", "tensor(12.3, device='cuda:0', grad_fn=<MulBackward0>)", "Array(12.3, dtype=float32)"],
    ],
)
def test_a_number_is_read_inside_what_libraries_print_around_it(text: str) -> None:
    for output in (f"took: {text}", f"took: {text} ms\ntook: 12.4 ms"):
        reading = read(r"took: (.*)", output)
        assert reading.values[0] == 12.3
        assert reading.unit == ("ms" if " ms" in output else "")
    assert read(r"\(([0-9.]+)\)", "took: np.float64(12.3)").values == (12.3,)  # the pattern is of what is around it
    with pytest.raises(NoNumberError, match="not a number"):
        read(r"took: (.*)", "took: Timer(12.3)")


def test_a_wrapped_number_that_is_none_is_left_out() -> None:
    assert read(r"took: (.*)", "took: tensor(nan)\ntook: tensor(2.)\ntook: tensor(3.)").n_left_out == 1


def test_a_label_names_the_unit_too() -> None:
    with pytest.raises(NoNumberError, match="inverse"):
        read(r"(?:it/s|s/it): ([0-9.]+)", "it/s: 1.51\ns/it: 3.2")


@pytest.mark.parametrize(
    ("output", "unit"),
    [
        *[("Total img/sec on 4 CPU(s): 49.2 +-0.8", ""), ("GPU(s): 49.2", ""), ("in 3 run(s): 49.2", "")],
        *[("latency(s): 49.2", "s"), ("Elapsed time (s): 49.2", "s"), ("Processed 3 image(s) in 49.2 s", "s")],
        *[("p99(s): 49.2", "s"), ("P99 (ms): 49.2", "ms"), ("1000 (ms) 49.2", "")],
    ],
)
def test_a_plural_in_parentheses_is_no_second_and_a_percentile_no_number(output: str, unit: str) -> None:
    assert read(r"(49\.2)", output).unit == unit


_TABLE = "Name (time in {})   Min   OPS ({}ops/s)\ntest_predict   {}   {}\n"


@pytest.mark.parametrize(
    ("pattern", "first", "later", "named"),
    [
        (r"predict\s+(\S+)", _TABLE.format("us", "K", 667.1, 1.5), _TABLE.format("ms", "", 1.33, 750.1), "ms"),
        (r"predict\s+\S+\s+(\S+)", _TABLE.format("us", "K", 667.1, 1.5), _TABLE.format("ms", "", 1.3, 750.1), "ops/s"),
        (r'"value": ([0-9.]+)', '{"value": 950.1, "unit": "us"}', '{"value": 1.21, "unit": "ms"}', "ms"),
        (r"^lat,([0-9.]+)", "lat,950.1,us", "lat,1.21,ms", "ms"),
        (r"lat: ([0-9.]+)", "results in ms:\nlat: 950.1", "results in s:\nlat: 1.21", "s"),
        (r"p50, p99: ([0-9.]+)", "p50, p99: 950, 990 us", "p50, p99: 1.2, 1.5 ms", "ms"),
        (r"avg ([0-9.]+)", "avg 950 max 990 us", "avg 1.2 max 1.5 ms", "ms"),
        (r"mean=\(([0-9.]+)", "mean=(950, 12) us", "mean=(1.2, 0.1) ms", "ms"),
        (r"\| ([0-9.]+)", "| 950 | us |", "| 1.2 | ms |", "ms"),
        (RATE, "throughput [kreq/s]\nrate: 1.2", "throughput [req/s]\nrate: 940", "req/s"),
        (r"predict\s+\S+\s+(\S+)", _TABLE.format("us", "", 667.1, 1500), _TABLE.format("ms", "", 1.3, 750.1), ""),
        (RATE, "times in us\nrate: 1500", "times in ms\nrate: 750", ""),
    ],
)
def test_a_unit_in_the_head_of_a_table_that_explains_a_difference_is_refused(
    pattern: str, first: str, later: str, named: str
) -> None:
    """pytest-benchmark chooses the unit of each table anew."""
    one, other = read(pattern, first), read(pattern, later)
    if named:
        with pytest.raises(NoNumberError, match=f"names {named} instead of"):
            check_alike(other.values, other.units_around, one.values, one.units_around)
    else:
        check_alike(other.values, other.units_around, one.values, one.units_around)


@pytest.mark.parametrize(
    ("pattern", "first", "later"),
    [
        (RATE, "rate: 950 Millisekunden", "rate: 1.2 Sekunden"),
        (RATE, "rate: 950 (millisecondi)", "rate: 1.2 (secondi)"),
        (RATE, "rate: 950 мс", "rate: 1.2 с"),
        (RATE, "rate: 950   us", "rate: 1.2   ms"),
        (RATE, "rate: 950 <us>", "rate: 1.2 <ms>"),
        (RATE, "rate: 950 [10^-6 s]", "rate: 1.2 [10^-3 s]"),
        (RATE, "rate: 950 - 990 Millisekunden", "rate: 1.2 - 1.4 Sekunden"),
        (RATE, "rate: 12 - 13 ms", "rate: 950 - 990 us"),
        (r": ([0-9.]+)$", "Zeit in Millisekunden: 950", "Zeit in Sekunden: 1.2"),
        (r"([0-9.]+) Mittel", "Millisekunden: 950 Mittel", "Sekunden: 1.2 Mittel"),
        (r"resnet,([0-9.]+)", "model,lat_us\nresnet,85.1", "model,lat_ms\nresnet,5.2"),
        (r"resnet,([0-9.]+)", "model,s/it\nresnet,3.2", "model,it/s\nresnet,1.5"),
        (r",([0-9.]+)$", "model,load_s,lat_us\nresnet,3.1,85.1", "model,load_s,lat_ms\nresnet,3.1,5.2"),
        (r'speed": ([0-9.]+)', '{"speed": 3.2, "unit": "s/it"}', '{"speed": 1.5, "unit": "it/s"}'),
        # In a field of its own, of numbers that settings may be so far apart.
        (r'"value": ([0-9.]+)', '{"value": 16.3, "unit": "ms"}', '{"value": 1.04, "unit": "s"}'),
        (r'"value": ([0-9.]+)', '{"value": 16.3,\n "unit": "ms"}', '{"value": 1.04,\n "unit": "s"}'),
        (r"value: ([0-9.]+)", "value: 16.3\nunit: ms\nn: 3", "value: 1.04\nunit: s\nn: 3"),
        (r"^lat,([0-9.]+)", "load,3.1,s\nlat,16.3,ms", "load,3.1,s\nlat,1.04,s"),
        # Of a known unit it must be the same number of things.
        (RATE, "rate: 950 ms/100 images", "rate: 940 ms/8 images"),
        (RATE, "rate: 950 ms per 100 images", "rate: 940 ms"),
    ],
)
def test_a_number_in_other_words_is_refused_where_these_may_be_units(pattern: str, first: str, later: str) -> None:
    one = read(pattern, first)
    assert one.like(one) == one
    for begin, other in ((first, later), (later, first)):
        with pytest.raises(NoNumberError, match=r"in the first run|of the first run"):
            read(pattern, other).like(read(pattern, begin))


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("XLA on: rate: 950", "XLA off: rate: 1200"),
        ("1 thread: rate: 950", "8 threads: rate: 7000"),
        ("rate: 950 (best so far)", "rate: 1200"),
        ("rate: 950 img/s, loss falls", "rate: 1200 img/s, loss rises"),
        ("rate: 950 ms ± 3", "rate: 1.2 s ± 0.1"),
        ("rate: 950 of 1000", "rate: 910 of 1100"),
        ("rate: 950\tresnet", "rate: 910\tvgg"),
        ("rate: 950 loss=falls", "rate: 910 loss=rises"),
        ("model,lat_us\nresnet,rate: 85.1", "model,lat_us\nvgg,rate: 5.2"),
        ("rate: 980M tokens/s", "rate: 1.25B tokens/s"),
        # Units of other figures: of a bar that turns over, and of other columns.
        ("100/100 [01:30<00:00,  1.11it/s]\nrate: 35.5", "100/100 [01:51<00:00,  1.11s/it]\nrate: 28.8"),
        ("1.11 steps/s\nrate: 35.5", "900 ms/step\nrate: 28.8"),
        ("1.43s/it\nrate: 0.7", "1.5it/s\nrate: 1.5"),
        ("speed: 1.43 [s/it]\nrate: 0.7", "speed: 1.5 [it/s]\nrate: 1.5"),
        ("Loading (ms)\nrate: 35.5", "Loading (s)\nrate: 28.8"),
        ("load,985,ms\nrate: 35.5", "load,1.1,s\nrate: 28.8"),
        ('rate: 35.5\n{"load": 985, "unit": "ms"}', 'rate: 28.8\n{"load": 1.1, "unit": "s"}'),
        ("rate: 35.5\nload: 985\nunit: ms", "rate: 28.8\nload: 1.1\nunit: s"),
        ("rate: 35.5\ntook 985ms", "rate: 28.8\ntook 1.2s"),
        ("rate: 120, latency, 1.2, ms", "rate: 118, latency, 900, us"),
        ('{"rate: 120, "latency": 1.2, "unit": "ms"}', '{"rate: 118, "latency": 900, "unit": "us"}'),
        ("rate: 56.20k     8.07k   62.00k", "rate: 856.20     80.07   962.00"),
        ("load_ms,model\n3,rate: 35.5", "load_s,model\n3,rate: 28.8"),
        ("top_k 5\nrate: 35.5", "top_M 5\nrate: 28.8"),
        ("rate: 98.1%", "rate: 99.1 %"),
    ],
)
def test_words_alone_fail_no_run(first: str, later: str) -> None:
    assert read(RATE, later).like(read(RATE, first)).values


_ALIGNED = """
Name (time in us)          Min            OPS
---------------------------------------------
test_predict          667.1000     1,499.0256
"""


@pytest.mark.parametrize(
    ("pattern", "output", "unit"),
    [
        (r"predict\s+([0-9.]+)", _ALIGNED, "us"),
        (r"predict\s+\S+\s+([0-9.]+)", _ALIGNED, ""),  # its rate
        (r"\(avg\): ([0-9.]+)", "Inference timings in us: Init: 12, Inference (avg): 98.1", "us"),
        (r"avg:\s+([0-9.]+)", "Latency (ms):\n    min: 0.7\n    avg: 1.2", "ms"),
        (r"resnet,([0-9.]+)", "model,lat_us\nresnet,85.1", "us"),
        (r"resnet,([0-9.]+)", "model,rate,lat_us\nresnet,85.1,3.2", ""),
        # A plural is no second.
        (r"Total img/sec on \d+ CPU\(s\): ([\d.]+)", "Total img/sec on 2 CPU(s): 26.0 +-0.8", ""),
        (r"Total img/sec on \d+ GPU\(s\): ([\d.]+)", "Total img/sec on 2 GPU(s): 26.0 +-0.8", ""),
        (r"avg\D+([\d.]+)", "Results of all CPU(s):\navg 26.0", ""),
        (r"avg\D+([\d.]+)", "Latency(s):\navg 26.0", "s"),
        (r"avg\D+([\d.]+)", "Latency of all CPU(s) (ms):\navg 26.0", "ms"),
        # Units of other figures.
        (r"score: ([0-9.]+)", "Loading (ms)\nscore: 35.5", ""),
        (r"score: ([0-9.]+)", "loaded in ms: 12, score: 35.5", ""),
        (r"FPS: ([0-9.]+)", "Times in us: first: 12, FPS: 35.5", ""),
    ],
)
def test_a_heading_has_the_unit_of_all_numbers_below_it(pattern: str, output: str, unit: str) -> None:
    reading = read(pattern, output)
    assert (reading.unit, reading.unit_of_all) == ("", unit)


def test_units_of_bytes_with_other_prefixes_have_a_note() -> None:
    """Of some programs 1 MB is 1024 KB."""
    one, other = read(RATE, "rate: 1010.12KB"), read(RATE, "rate: 1.05MB")
    assert other.like(one).around != one.around
    assert read(RATE, "rate: 2.1MB").like(other).around == other.around


def test_what_is_advised_fits_what_was_found() -> None:
    for pattern, output in ((r"([0-9.]+) us", "0 s 985000 us"), (r":([0-9.]+)s", "1:02s")):
        with pytest.raises(NoNumberError) as caught:
            read(pattern, output)
        assert caught.value.hint.startswith("print seconds alone, as for example GNU time does with -f %e")
    with pytest.raises(NoNumberError) as caught:  # no pattern with two groups
        read(r"\(([0-9.]+) sec\)", "1 row in set (1 min 2.12 sec)")
    assert caught.value.hint == ""


@pytest.mark.parametrize(
    ("output", "around"),
    [
        ("rate: 950", "rate: #"),
        ("step 3 rate: 950 Bilder pro Sekunde", "rate: # Bilder pro Sekunde"),
        ("10:31:02 [tmp7f3a] rate: 950", "rate: #"),
        ("1 thread: rate: 950 gadgets", "thread: rate: # gadget"),
        ("8 threads, rate: 950 | Millisekunden", "rate: #"),
        ("rate: 950 lr=0.1", "rate: #"),
        ("rate: 950 ms", ""),
        ("rate: 950 ms/100 images", "ms/100 images"),
        ("Modell  Zeit (Mikrosekunden)\n-----\nvgg   700\n\nrate: 950", "rate: # (Modell Zeit (Mikrosekunden))"),
        ("10:31:02 started\nrate: 950", "rate: #"),
        ("rate: 950\nall done", "rate: #"),
    ],
)
def test_the_words_around_a_number_without_a_unit_are_kept(output: str, around: str) -> None:
    assert read(RATE, output).around == around


def test_a_heading_that_changes_is_a_note_and_fails_a_run_only_if_the_number_is_far_off() -> None:
    table = "Modell   Zeit ({})\n------\nvgg   700\nrate: {}\n"
    one = read(RATE, table.format("Sekunden", 950))
    assert read(RATE, table.format("Sekunden", 9)).like(one).around == one.around
    near = read(RATE, table.format("Minuten", 95)).like(one)
    assert near.around != one.around
    with pytest.raises(NoNumberError, match=r"9 stands in 'rate: # \(Modell Zeit \(Minuten\)\)', and 950 in"):
        read(RATE, table.format("Minuten", 9)).like(one)


TOOLS = [
    # What well-known tools print: a pattern, a line, its numbers under two settings, and their ratio if units differ.
    ("sysbench", r"per second:\s+([0-9.]+)", "    events per second:  {}", "1234.56", "987.65", None),
    ("sysbench", r"avg:\s+([0-9.]+)", "Latency (ms):\n     min:  0.77\n     avg:  {}", "0.81", "1.01", None),
    ("fio", r"IOPS=([0-9.kM]+)", "  read: IOPS={}, BW=48.1MiB/s (50.4MB/s)", "12.3k", "980", 980 / 12300),
    ("wrk", r"Requests/sec:\s+([0-9.]+)", "Requests/sec:  {}\nTransfer/sec:      1.23MB", "12345.67", "9876.54", None),
    ("ab", r"per second:\s+([0-9.]+)", "Requests per second:    {} [#/sec] (mean)", "1234.56", "987.65", None),
    ("hey", r"Average:\s+([0-9.]+)", "  Average:\t{} secs", "0.0123", "0.0111", None),
    ("JMH", r"run\s+thrpt\s+5\s+([0-9.]+)", "Bench.run  thrpt    5  {} ± 12.345  ops/s", "1234.567", "934.567", None),
    ("perf", r"([0-9,]+)\s+cycles", " {}      cycles         #  3.210 GHz", "1,234,567,890", "987,654,321", None),
    ("perf", r"([0-9.]+) \+- [0-9.]+ sec", "{} +- 0.0123 seconds time elapsed ( +- 0.61% )", "2.0012", "1.8012", None),
    ("time", r"size \(kbytes\): (\d+)", "\tMaximum resident set size (kbytes): {}", "123456", "113456", None),
    (
        "hyperfine",
        r"σ\):\s+([0-9.]+)",
        "  Time (mean ± σ):  {} ±   1.2 ms  [User: 980 ms]",
        "985.4 ms",
        "1.105 s",
        1105 / 985.4,
    ),
    ("trtexec", r"Throughput: ([0-9.]+)", "[11/28/2026-10:11:12] [I] Throughput: {} qps", "1234.56", "987.654", None),
    ("trtexec", r"mean = ([0-9.]+)", "[I] Latency: min = 0.5 ms, mean = {} ms, median = 0.6 ms", "0.7", "0.6", None),
    (
        "iperf",
        r"([0-9.]+) [GM]bits/sec",
        "[  5]  0.00-10.04  sec  1.1 GBytes  {}  receiver",
        "941 Mbits/sec",
        "1.05 Gbits/sec",
        1050 / 941,
    ),
    ("redis", r"SET: ([0-9.]+)", "SET: {} requests per second, p50=0.303 msec", "81234.56", "71234.56", None),
    ("pgbench", r"tps = ([0-9.]+)", "tps = {} (without initial connection time)", "1234.567890", "1134.567890", None),
    ("loadgen", r"per second: ([0-9.]+)", "Samples per second: {}\nResult is : VALID", "1234.56", "1134.56", None),
    ("loadgen", r"latency \(ns\)\s+: (\d+)", "99.00 percentile latency (ns)   : {}", "12345678", "11345678", None),
    (
        "Keras",
        r"(\d+)[mu]s/step",
        "313/313 ━━━━━━━━━━ 1s {} - accuracy: 0.9 - loss: 0.1",
        "2ms/step",
        "971us/step",
        0.971 / 2,
    ),
    ("tqdm", r"([0-9.]+)it/s", "100%|██████████| 60/60 [00:12<00:00,  {}it/s]", "4.98", "4.18", None),
    (
        "tf_cnn",
        r"total images/sec: ([0-9.]+)",
        "1\timages/sec: 33.1 +/- 0.0\ntotal images/sec: {}",
        "133.12",
        "123.1",
        None,
    ),
    (
        "TFLite",
        r"\(avg\): ([0-9.]+)$",
        "Inference timings in us: Init: 123, Inference (avg): {}",
        "1234.5",
        "1134.5",
        None,
    ),
    (
        "llama",
        r"([0-9.]+) tokens per second",
        "eval time = 1.5 ms / 63 runs (19.6 ms per token, {} tokens per second)",
        "51.03",
        "47.21",
        None,
    ),
    ("llama", r"pp512 \|\s+([0-9.]+)", "| 7B Q4_0 | 3.56 GiB | CPU | 8 | pp512 |  {} ± 0.34 |", "45.12", "25.12", None),
    ("go", r"([0-9.]+) ns/op", "BenchmarkX-8   \t 1000000\t      {} ns/op\t     120 B/op", "1234", "1034", None),
    ("dd", r"s, ([0-9.]+) \w+/s", "1073741824 bytes (1.1 GB) copied, 0.98 s, {}", "1.1 GB/s", "910 MB/s", 910 / 1100),
    ("ffmpeg", r"fps=\s*([0-9.]+)", "frame=  123 fps= {} q=28.0 time=00:00:05.12 speed=1.23x", "25", "21", None),
    ("openssl", r"cbc\s+([0-9.]+)", "aes-128 cbc     {}   234567.89k", "123456.78k", "113456.78k", None),
    (
        "HPL",
        r"192.*?([0-9.e+]+)$",
        "WR11C2R4       20000   192     1     4    123.45    {}",
        "4.3210e+01",
        "4.1210e+01",
        None,
    ),
    ("timeit", r"of 5: ([0-9.]+)", "10000 loops, best of 5: {} usec per loop", "23.4", "21.4", None),
    ("pyperf", r"std dev: ([0-9.]+)", "bench: Mean +- std dev: {} +- 12 us", "985 us", "1.05 ms", 1050 / 985),
    ("Triton", r"latency (\d+) usec", "Concurrency: 1, throughput: 9 infer/sec, latency {} usec", "8102", "8802", None),
    (
        "trainer",
        r"per_second': ([0-9.]+)",
        "{{'runtime': 12.3, 'train_samples_per_second': {}}}",
        "123.45",
        "113.45",
        None,
    ),
    (
        "absl",
        r"examples/sec: ([0-9.]+)",
        "I1128 10:11:12.123456 139 basic.py:1] examples/sec: {}",
        "123.4",
        "113.4",
        None,
    ),
    ("YOLO", r"([0-9.]+)ms inference", "Speed: 1.2ms preprocess, {}ms inference per image", "45.6", "41.6", None),
]


@pytest.mark.parametrize("tool", TOOLS, ids=[each[0] for each in TOOLS])
def test_tools_are_read_and_compared_without_a_note(tool: tuple[str, str, str, str, str, float | None]) -> None:
    _, pattern, line, first, later, ratio = tool
    one = read(pattern, line.format(first))
    other = read(pattern, line.format(later)).like(one)
    true = (
        float(later.replace(",", "").strip("k")) / float(first.replace(",", "").strip("k")) if ratio is None else ratio
    )
    assert other.values[-1] / one.values[-1] == pytest.approx(true)
    assert other.around == one.around


_LLAMA = "{} time = {} ms / {} runs ( 19.6 ms per token, {} tokens per second)\n"


@pytest.mark.parametrize(
    ("pattern", "output", "figures"),
    [
        (r"([\d.]+) ex/sec", "train: 100 ex/sec\n" * 3 + "eval: 33 ex/sec\n" * 4, ("train #", "eval #")),
        (
            r"([\d.]+) tokens",
            _LLAMA.format("prompt eval", 200, 10, 50.0) + _LLAMA.format("eval", 9000, 63, 8.0),
            ("prompt eval time ms runs token #", "eval time ms runs token #"),
        ),
        (r"([\d.]+)it/s", bar(*["30it/s"] * 5) + "\n" + "Valid " + "\rValid ".join(["9it/s"] * 9), ("#", "Valid #")),
        (r"([\d.]+) tok/s", "prefill 500 tok/s | decode 20 tok/s", ("prefill #", "prefill decode #")),
        (r"in ([\d.]+)", "Compiled in 2.3 s\nTrained in 950 ms", ("Compiled in #", "Trained in #")),
        # About the same, few of them, or one figure.
        (r"([\d.]+) ex/sec", "train: 100 ex/sec\n" * 3 + "eval: 99 ex/sec\n" * 4, ()),
        (r"sec: ([\d.]+)", "images/sec: 33.1\n" * 9 + "total images/sec: 33.2", ()),
        (r"sec: ([\d.]+)", "images/sec: 33.1\n" * 9 + "total images/sec: 133.2", ()),
        (r": ([\d.]+)", "epoch 1: 3\nepoch 2: 12\nepoch 3: 12", ()),
        (r": ([\d.]+)", "step1: 3 ms\nstep2: 12 ms", ()),
        (r"([\d.]+) ms", "step 50 ms\nstep 12 ms (new best)\nstep 13 ms\nstep 11 ms (new best)", ()),
        (r"([\d.]+) ms", "step 50 ms\nnew best 12 ms\nnew best 11 ms\nstep 13 ms", ()),
        (r"([\d.]+) ms", "".join(f"{name}.jpg {10 * n} ms\n" for n, name in enumerate("abcde", 1)), ()),
        (r"([\d.]+) ms", "times: 50 ms, 12 ms, 13 ms", ()),
        (r"([\d.]+)it/s", bar("1.1it/s", "9it/s", "12it/s, loss=0.3", "12.1it/s, loss=0.3"), ()),
        (r"took ([\d.]+)", "took 1m40s\ntook 50 s", ()),
        (RATE, "rate: 0\nrate: 12", ()),
    ],
)
def test_two_figures_that_are_far_apart_are_told(pattern: str, output: str, figures: tuple[str, ...]) -> None:
    assert read(pattern, output).figures == figures


def test_a_reading_is_converted_with_its_resolution() -> None:
    converted = Reading(values=(917.0, 915.0), resolution=1.0, unit="us/step").in_unit("ms/step")
    assert converted.values == pytest.approx((0.917, 0.915))
    assert (converted.resolution, converted.unit) == (pytest.approx(0.001), "ms/step")


@pytest.mark.parametrize(
    ("unit", "answer"),
    [
        *[("ms/step", True), ("s/it", True), ("s", True), ("J", True), ("mJ/item", True), ("items/J", None)],
        *[("it/s", False), ("images per second", False), ("FPS", False), ("KQPS", False), ("GFLOPS", False)],
        *[("", None), ("k", None), ("img", None)],
    ],
)
def test_of_a_time_less_is_better(unit: str, answer: bool | None) -> None:
    assert is_time(unit) is answer


@pytest.mark.parametrize(
    ("unit", "answer"), [("it/s", True), ("ms/step", True), ("batches/sec", True), ("images/s", False), ("", False)]
)
def test_a_unit_of_steps_does_not_count_items(unit: str, answer: bool) -> None:
    assert is_per_step(unit) is answer


def test_a_unit_of_items_does_not_depend_on_the_batch() -> None:
    items = ["images/sec", "k images/sec", "kimg/s", "FPS", "KFPS", "tokens per second", "toks/s", "ms/image", "MB/s"]
    assert all(counts_items(unit) for unit in [*items, "GFLOPs", "Mrows/s"])
    assert not any(counts_items(unit) for unit in ["", "qps", "infer/sec", "Requests/sec", "ms", "it/s", "s/step", "x"])


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        *[("{'train_samples_per_second': 12.3, 'x': 1}", True), ('"images_per_sec": 12.3', True)],
        *[
            ("items_per_second: 12.3", True),
            ("RunningAvgSamplesPerSec=12.3", True),
            ("12.3 total (tokens per s)", True),
        ],
        *[("train_steps_per_second: 12.3", False), ("Requests per second: 12.3", False), ("score: 12.3", False)],
        *[("items: 3, per second: 12.3", False), ("images_per_step: 12.3", False), ("samples: 12.3", False)],
    ],
)
def test_a_label_of_items_per_second_does_not_depend_on_the_batch(output: str, answer: bool) -> None:
    reading = read(r"(12\.3)", output)
    assert (reading.unit, names_items(reading.around)) == ("", answer)


@pytest.mark.parametrize("nothing", ["0.0", "nan", "inf", "-inf", "?", "n/a", "-3"])
def test_what_is_reported_before_anything_was_counted_is_left_out(nothing: str) -> None:
    lines = [f"rate {nothing}", "rate 5", "rate 6"]
    reading = read(r"rate (\S+)", "\n".join(lines))
    assert (reading.values, reading.n_left_out) == ((5.0, 6.0), 1)
    late = read(r"rate (\S+)", "\n".join([*lines, lines[0]]))
    assert (late.values, late.n_left_out) == ((5.0, 6.0), 2)


@pytest.mark.parametrize("output", ["rate 0.0", "rate nan\nrate inf", "rate 5\nrate 0\nrate 0", "rate -3"])
def test_a_run_without_enough_numbers_above_0_is_refused(output: str) -> None:
    with pytest.raises(NoNumberError, match="expected finite numbers above 0"):
        read(r"rate (\S+)", output)


def test_of_many_numbers_some_are_read() -> None:
    values = read(r"rate (\d+)", "\n".join(f"rate {i}" for i in range(1, 10_001))).values
    assert 1000 < len(values) <= 1200
    assert (min(values), max(values)) == (1, 10_000)


@pytest.mark.parametrize("n_ranks", [2, 3, 4, 8])
def test_lines_that_take_turns_keep_their_shares(n_ranks: int) -> None:
    medians = {
        statistics.median(read(RATE, "\n".join(f"rate: {80 + 40 * (i % n_ranks)}" for i in range(n))).values)
        for n in (384, 408, 1200, 1224, 2400, 4824)
    }
    assert medians == {80 + 20 * (n_ranks - 1)}


@given(st.integers(1, 10**12), st.integers(0, 6))
def test_what_python_prints_with_separators_is_read_as_it_was_meant(number: int, decimals: int) -> None:
    value = number / 10**decimals
    reading = read(RATE, f"rate: {value:,.{decimals}f}")
    assert math.isclose(reading.values[0], value, rel_tol=1e-9)
    assert reading.resolution == pytest.approx(10.0**-decimals)


@given(st.text(alphabet=string.digits + string.ascii_letters + " .,:'_/%+-\r\n\x1b[", max_size=60))
def test_no_output_is_more_than_refused(output: str) -> None:
    for pattern in (r"[0-9.]+", r"(\S+)", r"(\d+)", r"([0-9.]+) ?\w*$"):
        try:
            reading = read(pattern, output)
        except NoNumberError:
            continue
        assert all(0 < value < math.inf for value in reading.values)
        assert reading.resolution > 0


def test_a_number_without_a_unit_beside_one_with_a_unit_names_the_way_out() -> None:
    """One of the two is another figure; without a unit throughout all are of one kind."""
    assert read(r"took ([0-9.]+)", "took 12\ntook 13\n").values == (12.0, 13.0)
    for text in ("took 12 ms\ntook 13\n", "took 12\ntook 13 ms\n"):
        with pytest.raises(NoNumberError, match="some have the unit ms, and others have none") as caught:
            read(r"took ([0-9.]+)", text)
        assert "let the pattern match ms, e.g. ([0-9.]+) *ms" in caught.value.hint
    assert read(r"took ([0-9.]+) ms", "took 12 ms\ntook 13\n").values == (12.0,)


def test_what_the_shell_prints_of_a_time_has_a_hint() -> None:
    text = "\nreal\t0m1.250s\nuser\t0m1.0s\nsys\t0m0.1s\n"
    with pytest.raises(NoNumberError, match="no line of its output matches") as caught:
        read(r"real\s+([0-9.]+)s", text)
    assert "let the pattern match 0m1.250s" in caught.value.hint
    assert read(r"real\s+(\S+)", text).values == read(r"real\s+([0-9.]+)", text).values == (1.25,)


@pytest.mark.parametrize(
    ("pattern", "output", "n"),
    [
        (r"([0-9.]+),?", f"times=[{','.join(f'{0.01 + i / 1e4:.4f}' for i in range(2000))}]", 1200),
        (r"([0-9.]+) ", "times: " + " ".join(f"{0.01 + i / 1e4:.4f}" for i in range(2000)) + " ", 1200),
        (r"([0-9.]+) img", f"{'word ' * 400}\n" + "12.5 img\n" * 2000, 1200),
        (RATE, f"rate: 12{'.' * 100_000}", 1),
        (RATE, f"{'.' * 100_000}\nrate: 12", 1),
        (RATE, "\n" * 65_000 + "rate: 12", 1),
        (RATE, "\t" * 65_000 + "rate: 12", 1),
    ],
    ids=["list", "line", "words above", "dots after", "dots above", "blank lines", "tabs"],
)
def test_long_outputs_are_read_in_a_moment(pattern: str, output: str, n: int) -> None:
    begin = time.process_time()
    assert len(read(pattern, output).values) == n
    assert time.process_time() - begin < 10.0
