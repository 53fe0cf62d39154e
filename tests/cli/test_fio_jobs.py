"""Job files of fio in csdsim run. Usage: test_fio_jobs.py CSDSIM SOURCE_DIR"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

CSDSIM = sys.argv[1]
del sys.argv[1:]
DRIVE = "platform.device.preset=samsung-980-pro-2tb"
READS = "[reads]\nrw=randread\nbs=4k\niodepth=32\nioengine=libaio\ndirect=1\n"


class JobFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def csdsim(self, command, text, *sets, name="jobs.fio", options=()):
        """A command on a file with this text."""
        (self.folder / name).write_text(text)
        options = [*options, *(part for each in sets for part in ("--set", each))]
        return subprocess.run([CSDSIM, command, name, *options], cwd=self.folder, capture_output=True, text=True, timeout=300)

    def workload(self, text, *sets):
        """The workload of a run with few requests, and what the run notes of the file."""
        run = self.csdsim("run", text, DRIVE, "workload.requests=100", *sets, options=["--format", "json"])
        self.assertEqual(run.returncode, 0, run.stderr)
        notes = [line for line in run.stderr.splitlines() if line.startswith("jobs.fio: note: ")]
        return json.loads(run.stdout)["scenario"]["workload"], "\n".join(notes)

    def refusal(self, text, *sets, command="run"):
        run = self.csdsim(command, text, *(sets or (DRIVE,)))
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertEqual(run.stdout, "")
        return run.stderr

    def test_a_job_gives_the_result_of_the_scenario_that_says_the_same(self):
        scenario = ("csdsim: 1\nname: jobs\nplatform: {device: {preset: samsung-980-pro-2tb}}\n"
                    "workload: {kind: block_io, pattern: random_read, request_size: 4 KiB, queue_depth: 32}\n")
        results = []
        for name, text in (("jobs.fio", READS), ("same.yaml", scenario)):
            run = self.csdsim("run", text, DRIVE, "workload.requests=3000", name=name, options=["-q", "--out", name + ".out"])
            self.assertEqual((run.returncode, run.stderr), (0, ""))
            results.append(json.loads((self.folder / (name + ".out") / "result.json").read_text()))
        for result in results:
            del result["wall"]  # the time that the simulation took
        self.assertEqual(results[0], results[1])
        self.assertGreater(results[0]["metrics"]["iops"], 100000)

    def test_a_drive_of_ones_own(self):
        (self.folder / "my_ssd.yaml").write_text("csdsim: 1\nplatform: {device: {flash: {channels: 2, dies_per_channel: 1}}}\n"
                                                 "workload: {kind: block_io, pattern: random_write}\n")
        run = self.csdsim("run", READS, "platform=my_ssd.yaml", "workload.requests=100", options=["--format", "json"])
        self.assertEqual(run.returncode, 0, run.stderr)
        scenario = json.loads(run.stdout)["scenario"]
        self.assertEqual(scenario["platform"]["device"]["flash"]["channels"], 2)
        self.assertEqual(scenario["workload"]["pattern"], "random_read")

    def test_a_quiet_run_prints_its_result(self):
        run = self.csdsim("run", READS, DRIVE, "workload.requests=100", options=["-q", "--out", "out"])
        self.assertRegex(run.stdout, r"(?m)^iops +")
        self.assertEqual(run.stderr, "")

    def test_global_sections_clones_and_comments(self):
        work, notes = self.workload("[global]\nbs=8k ; of all jobs\nioengine=io_uring\niodepth=3\ndirect=1\n"
                                    "# one job\n[mix]\nreadwrite=randrw\nrwmixread=70\nnumjobs=4\n")
        self.assertEqual((work["pattern"], work["request_size"], work["queue_depth"], work["read_fraction"], work["streams"]),
                         ("random_mixed", "8 KiB", 12, "0.7", 1))
        self.assertEqual(notes, "")
        work, _ = self.workload("[a]\nrw=read\nbs=64k\nblocksize=128k\ndirect=1\nnumjobs=2\n")
        self.assertEqual((work["pattern"], work["request_size"], work["queue_depth"], work["streams"]),
                         ("sequential_read", "128 KiB", 2, 2))

    def test_jobs_side_by_side_are_flows(self):
        work, notes = self.workload("[global]\nioengine=libaio\ndirect=1\n[reads]\nrw=randread\niodepth=16\nnumjobs=2\n"
                                    "[mix]\nrw=randrw\nrwmixwrite=30\nbs=16k\niodepth=4\n")
        self.assertEqual(work["flows"]["patterns"], ["random_read", "random_mixed"])
        self.assertEqual(work["flows"]["request_sizes"], ["4 KiB", "16 KiB"])
        self.assertEqual(work["flows"]["queue_depths"], [32, 4])
        self.assertEqual(work["flows"]["read_fractions"], ["1", "0.7"])
        self.assertEqual(work["flows"].get("placements", []), [])
        self.assertIn("each job has its own part of the working set", notes)

    def test_what_is_taken_from_elsewhere_is_noted(self):
        _, notes = self.workload("[a]\nrw=randread\niodepth=8\nruntime=30\nsize=1G\ntime_based\n")
        self.assertIn("not used: runtime, size. workload.requests", notes)
        self.assertIn("without direct=1", notes)
        self.assertIn("ioengine psync has one request in flight", notes)

    def test_placement_identifiers_go_to_the_flows(self):
        jobs = "[global]\nioengine=io_uring_cmd\nfdp=1\nrw=randwrite\nbs=16k\n[a]\nplids=1\n[b]\nplids=3\n"
        fdp = "platform.device.preset=samsung-pm9d3a-7.68tb"
        work, _ = self.workload(jobs, fdp)
        self.assertEqual(work["flows"]["placements"], [1, 3])
        self.assertIn("placement", self.refusal(jobs))  # this drive has none
        for text, line, said in (("[a]\nfdp=1\n[b]\n", 2, "fdp without plids takes all placement identifiers in turn"),
                                 ("[a]\nfdp=1\nplids=0,1\n[b]\n", 3, "plids is '0,1', expected one placement identifier"),
                                 ("[a]\nplids=1\n[b]\n", 2, "plids has no effect without fdp=1"),
                                 ("[a]\ndataplacement=streams\n", 2, "dataplacement is 'streams', expected fdp"),
                                 ("[a]\nfdp=1\nplids=1\n", 3, "a single job writes all data by one placement identifier")):
            self.assertIn(f"jobs.fio:{line}: error: job 'a': {said}", self.refusal(text))

    def test_mistakes_and_what_is_not_simulated_are_located(self):
        for text, line, said in (
                ("[a]\nrw=randread\niodpeth=4\n", 3, "job 'a': iodpeth is not simulated, or not known"),
                ("[global]\nrate_iops=100\n[a]\n", 2, "job 'a': rate_iops is not simulated"),
                ("[a]\n\nbs=4q\n", 3, "job 'a': bs is '4q', expected one size such as 4k"),
                ("[a]\nrw=randtrim\n", 2, "job 'a': rw is 'randtrim', expected read, write"),
                ("[a]\nioengine=libaio\niodepth=0\n", 3, "job 'a': iodepth is '0', expected a number from 1 on"),
                ("[a]\ndirect=yes\n", 2, "job 'a': direct is 'yes', expected 0 or 1"),
                ("[a]\nioengine=null\n", 2, "job 'a': ioengine 'null' is not known"),
                ("[a]\nfilename=/dev/sda:/dev/sdb\n", 2, "job 'a': filename '/dev/sda:/dev/sdb' names 2 files"),
                ("[a]\nfilename=/dev/sda\n[b]\nfilename=/dev/sdb\n", 4, "job 'b': filename is '/dev/sdb', that of job 'a'"),
                ("[a]\n[b]\nstonewall\n", 3, "job 'b': waits for a job before it (stonewall)"),
                ("[a]\n[b]\nwait_for=a\n", 3, "job 'b': waits for a job before it (wait_for)"),
                ("[a]\n[b]\nrw=read\nnumjobs=2\n", 4, "job 'b': clones of a sequential job beside other jobs"),
                ("[a]\nrw=rw\nrwmixread=100\n", 3, "job 'a': rwmixread and rwmixwrite have to be from 1 to 99"),
                ("[a\n", 1, "expected a section such as [job]"),
                ("rw=read\n[a]\n", 1, "an option before the first section"),
                ("[a]\ninclude other.fio\n", 2, "include is not read"),
                ("[a]\nbs=${BS}\n", 2, "variables of the environment are not read")):
            self.assertTrue(self.refusal(text).startswith(f"jobs.fio:{line}: error: {said}"), (text, self.refusal(text)))
        nine = self.refusal("".join(f"[j{i}]\nrw=read\n" for i in range(9)))
        self.assertEqual(nine, "jobs.fio:17: error: job 'j8': is one of 9 jobs; at most 8 are simulated side by side\n")
        self.assertIn("jobs.fio: has no job", self.refusal("[global]\nrw=read\n"))
        self.assertIn("jobs.fio (as a scenario):7:19: error: workload.request_size: 1 kB is not a multiple", self.refusal(READS.replace("4k", "1000")))

    def test_the_drive_has_to_be_named(self):
        for command in ("run", "check", "sweep", "datasheet", "certify"):
            said = self.refusal(READS, "platform.gpu.preset=l40s", command=command)
            self.assertIn("jobs.fio: a job file of fio does not say what the drive is; add --set platform.device.preset=NAME", said)
        self.assertIn("samsung-999", self.refusal(READS, "platform.device.preset=samsung-999"))

    def test_other_commands(self):
        check = self.csdsim("check", READS, DRIVE)
        self.assertEqual(check.returncode, 0, check.stderr)
        self.assertIn("jobs.fio: ok\n", check.stdout)
        self.assertIn("jobs.fio: has no sweep; add", self.refusal(READS, command="sweep"))
        help_text = subprocess.run([CSDSIM, "run", "--help"], capture_output=True, text=True).stdout
        self.assertIn("fio", help_text)


if __name__ == "__main__":
    unittest.main()
