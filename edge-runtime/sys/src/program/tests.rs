//! Programs that hang, print too much, or end as they should.

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

/// Whether the process that wrote its number into `file` has gone.
fn gone(file: &std::path::Path) -> bool {
    let text = std::fs::read_to_string(file).unwrap();
    let pid: i32 = text.trim().parse().unwrap();
    (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        !crate::host::is_alive(pid)
    })
}

#[test]
fn a_program_that_hangs_ends_with_its_children() {
    let dir = tempfile::tempdir().unwrap();
    for (name, script) in [("open", "sleep 1000 & echo $! >F; wait"), ("closed", "exec >&-; echo $$ >F; sleep 1000")] {
        let file = dir.path().join(name);
        let script = script.replace('F', &file.display().to_string());
        let patience = Duration::from_millis(500);
        let error = smol::block_on(run(shell(&script), b"", 100, patience)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        assert!(gone(&file), "{name}");
        assert_eq!(ask(shell(&script), 100, patience).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(gone(&file), "{name}, asked");
    }
    // The future is dropped.
    let file = dir.path().join("dropped");
    let script = format!("echo $$ >{}; sleep 1000", file.display());
    let left =
        smol::future::or(async { run(shell(&script), b"", 100, Duration::from_secs(60)).await.map(drop) }, async {
            while !std::fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n')) {
                smol::Timer::after(Duration::from_millis(5)).await;
            }
            Ok(())
        });
    smol::block_on(left).unwrap();
    assert!(gone(&file));
}

#[test]
fn lines_are_handed_on_as_they_come_and_have_a_limit() {
    let mut lines = Vec::new();
    let said = |line: &[u8]| lines.push(String::from_utf8_lossy(line).into_owned());
    let status =
        smol::block_on(follow(shell("read x; echo $x; printf 'a\nb\nc'; exit 3"), b"in\n", 100, LONG, said)).unwrap();
    assert_eq!((status.code(), lines), (Some(3), vec!["in".to_owned(), "a".into(), "b".into()]));
    let long = smol::block_on(follow(shell("head -c 100000 /dev/zero; sleep 1000"), b"", 5000, LONG, |_| {}));
    assert!(long.unwrap_err().to_string().contains("5000"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("dropped");
    let script = format!("echo $$ >{}; sleep 1000", file.display());
    let told = std::cell::Cell::new(false);
    let look = async {
        while !std::fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n')) {
            smol::Timer::after(Duration::from_millis(5)).await;
        }
        told.set(true);
    };
    let run = async { drop(follow(shell(&script), b"", 100, LONG, |_| {}).await) };
    smol::block_on(smol::future::or(run, look));
    assert!(told.get() && gone(&file));
}

#[test]
fn silent_program_ends_with_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let order = vec![b'x'; 1 << 20];
    for (name, script) in [
        ("mute", "cat >/dev/null; sleep 1000 & echo $! >F; wait"),
        ("deaf", "sleep 1000 & echo $! >F; wait"),
        ("closed", "cat >/dev/null; exec >&-; echo $$ >F; sleep 1000"),
    ] {
        let file = dir.path().join(name);
        let script = script.replace('F', &file.display().to_string());
        let heard = follow(shell(&script), &order, 100, Duration::from_millis(500), |_| {});
        let error = smol::block_on(heard).unwrap_err();
        assert!(error.kind() == io::ErrorKind::TimedOut && error.to_string().contains("nothing was heard"), "{name}");
        assert!(gone(&file), "{name}");
    }
    // A program that prints now and then continues, whatever it prints.
    let script = "for i in 1 2 3 4 5 6; do echo; sleep 0.2; done";
    let mut lines = 0;
    let heard = follow(shell(script), b"", 100, Duration::from_secs(1), |_| lines += 1);
    assert!(smol::block_on(heard).unwrap().success());
    assert_eq!(lines, 6);
}

#[test]
fn an_unprotected_program_is_an_ordinary_process() {
    let patience = Duration::from_secs(20);
    let ask = "read x; cat /proc/self/oom_score_adj";
    let output = smol::block_on(run_unprotected(shell(ask), b"\n", 100, patience)).unwrap();
    let expected = crate::host::oom_score_adj().max(0);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected.to_string());
}

#[test]
fn other_programs_do_not_inherit_the_daemons_allocator() {
    let command = || {
        let mut command = shell("echo ${GLIBC_TUNABLES-none}");
        command.env(TUNABLES, "glibc.malloc.tcache_count=0");
        command
    };
    assert_eq!(ask(command(), 100, LONG).unwrap().stdout, b"none\n");
    assert_eq!(smol::block_on(run(command(), b"", 100, LONG)).unwrap().stdout, b"none\n");
    assert_eq!(smol::block_on(run_unprotected(command(), b"", 100, LONG)).unwrap().stdout, b"none\n");
}

#[test]
fn output_is_taken_up_to_its_limit() {
    let patience = Duration::from_secs(20);
    let script = "cat; echo why >&2; exit 3";
    let output = smol::block_on(run(shell(script), b"in", 100, patience)).unwrap();
    assert_eq!((output.status.code(), &*output.stdout, &*output.stderr), (Some(3), &b"in"[..], &b"why\n"[..]));
    assert!(smol::block_on(run(shell("exec yes"), b"", 100, patience)).unwrap_err().to_string().contains("100 bytes"));
    let output = ask(shell("echo out; exit 3"), 100, patience).unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(3), &b"out\n"[..]));
    assert!(ask(shell("exec yes"), 100, patience).unwrap_err().to_string().contains("100 bytes"));
    assert!(ask(Command::new("/nowhere/program"), 100, patience).is_err());
}
