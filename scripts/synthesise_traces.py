#!/usr/bin/env python3
"""Makes the small traces of scenarios/traces. Nothing in them was recorded: they are drawn from the distributions below.

Usage: scripts/synthesise_traces.py [DIRECTORY]    the same bytes each time
"""
import pathlib
import random
import sys

OUT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent / "scenarios/traces")
SECTOR = 512


def mail_server(count=600):
    """MSR Cambridge CSV. Bursts of 4 to 24 requests 20-400 us apart, 2-20 ms between bursts; two disks; a third reads. Half
    of the requests go to a hot tenth of 24 MiB, the rest anywhere; sizes of 1 to 128 sectors, 4 KiB most often."""
    rng = random.Random(1)
    ticks = 128166372000000000  # 100 ns since 1601, as Windows counts
    rows = []
    while len(rows) < count:
        disk = rng.choice([0, 0, 0, 1])
        for _ in range(rng.randint(4, 24)):
            size = rng.choice([1, 2, 8, 8, 8, 8, 16, 32, 64, 128]) * SECTOR
            span = 24 << 20
            low, high = (0, span // 10) if rng.random() < 0.5 else (0, span)
            offset = rng.randrange(low, high - size, SECTOR)
            if size >= 4096:
                offset -= offset % 4096
            kind = "Read" if rng.random() < 1 / 3 else "Write"
            response = int(rng.lognormvariate(9.0, 0.8))
            rows.append(f"{ticks},mail,{disk},{kind},{offset},{size},{response}")
            ticks += int(rng.uniform(200, 4000))
        ticks += int(rng.uniform(20_000, 200_000))
    return rows[:count]


def database(count=400):
    """fio iolog, version 3: a log file that is appended to in 8 KiB and synced, beside random 8 KiB pages of a table,
    Poisson with 40 us on average; one page in twenty is trimmed after it was read."""
    rng = random.Random(2)
    rows = ["fio version 3 iolog", "0 table add", "0 log add", "0 table open", "0 log open"]
    now, tail = 0.0, 0
    while len(rows) < count:
        now += rng.expovariate(1 / 40)
        if rng.random() < 0.2:
            rows.append(f"{int(now)} log write {tail} 8192")
            rows.append(f"{int(now) + 1} log datasync 0 0")
            tail += 8192
            continue
        page = rng.randrange(1024) * 8192
        action = "read" if rng.random() < 0.7 else "write"
        rows.append(f"{int(now)} table {action} {page} 8192")
        if action == "read" and rng.random() < 0.05:
            rows.append(f"{int(now) + 2} table trim {page} 8192")
    return rows + [f"{int(now) + 10} table close", f"{int(now) + 10} log close"]


def backup(count=250):
    """fio iolog, version 2: a file read from end to end in 64 KiB, 16 requests every 2 ms."""
    rows = ["fio version 2 iolog", "backup add", "backup open"]
    for i in range(count):
        if i % 16 == 0 and i > 0:
            rows.append(f"backup wait {i // 16 * 2} 0")
        rows.append(f"backup read {i * 65536} 65536")
    return rows + ["backup close"]


for name, rows in (("mail.msr.csv", mail_server()), ("database.v3.iolog", database()), ("backup.v2.iolog", backup())):
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / name).write_text("\n".join(rows) + "\n")
