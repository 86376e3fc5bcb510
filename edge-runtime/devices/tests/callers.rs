//! The socket of the helper: who may call, how often, and when it ends.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use sampan_devices_control::{FromHelper, Kind, Named, Question, Report, Settings, ToHelper, VERSION};
use support::{Helper, NODE, PATIENCE, connect, device, spawn};

fn t1() -> Named {
    Named { namespace: "default".into(), name: "t1".into() }
}

/// A command of a person.
struct Client {
    stream: UnixStream,
    lines: std::io::Lines<BufReader<UnixStream>>,
}

impl Client {
    fn new(helper: &Helper) -> Self {
        let stream = connect(&helper.socket);
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let lines = BufReader::new(stream.try_clone().expect("a clone")).lines();
        let mut client = Self { stream, lines };
        client.say(&ToHelper::Client {});
        client
    }

    fn say(&mut self, line: &ToHelper) {
        let mut text = serde_json::to_vec(line).expect("JSON");
        text.push(b'\n');
        // Who has been sent away gets no answer.
        let _ = self.stream.write_all(&text);
    }

    fn ask(&mut self, id: u64, question: Question) {
        self.say(&ToHelper::Ask { id, question });
    }

    /// `None` when the helper has hung up.
    fn answer(&mut self) -> Option<(u64, Result<serde_json::Value, String>)> {
        let line = self.lines.next()?.ok()?;
        match serde_json::from_str(&line).expect("a line of the contract") {
            FromHelper::Answer { id, answer } => Some((id, answer)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn people_ask_set_and_watch() {
    let mut helper = Helper::start(&Settings::default());
    helper.lab("ON");
    helper.told();
    let mut client = Client::new(&helper);
    client.ask(1, Question::Watch { device: Some(t1()) });
    let (id, answer) = client.answer().expect("an answer");
    let seen = answer.expect("it is here");
    assert_eq!((id, &seen[0]["properties"][0]["desired"]["value"]), (1, &"ON".into()));

    let mut other = Client::new(&helper);
    let set = |value: &str| Question::Set { device: t1(), property: "led".into(), value: value.into() };
    other.ask(2, set("DIM"));
    let (id, answer) = other.answer().expect("an answer");
    assert_eq!((id, &answer.expect("done")[0]["properties"][0]["local"]["value"]), (2, &"DIM".into()));
    let (id, answer) = client.answer().expect("the change");
    assert_eq!((id, &answer.expect("it is here")[0]["properties"][0]["local"]["value"]), (1, &"DIM".into()));
    other.ask(3, Question::Get { device: Some(Named { name: "t2".into(), ..t1() }) });
    assert!(other.answer().is_some_and(|(id, answer)| id == 3 && answer.is_err()));

    // The bridge gets the value that this node desires, and the value lasts.
    let (_, devices) = helper.report();
    assert_eq!(devices[0].twins[0].observed.as_ref().map(|observed| observed.value.as_str()), Some("DIM"));
    assert!(helper.kept()[0].record.contains("DIM"));

    let more: Vec<Client> = (0..8).map(|_| Client::new(&helper)).collect();
    let sent_away = more.into_iter().filter_map(|mut client| {
        client.ask(1, Question::Get { device: None });
        client.answer().is_none().then_some(())
    });
    assert_eq!(sent_away.count(), 2, "eight at once");
}

#[test]
fn callers_that_say_nonsense_are_sent_away() {
    let mut helper = Helper::start(&Settings::default());
    helper.told();
    for nonsense in [
        &b"no JSON\n"[..],
        b"{\"told\":{}}\n",
        b"{\"client\":{}}\n{\"told\":{}}\n",
        b"{\"client\":{}}\n{\"client\":{}}\n",
        b"\xff\xfe\n",
    ] {
        let mut stream = connect(&helper.socket);
        stream.write_all(nonsense).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        assert!(matches!(stream.read(&mut [0; 64]), Ok(0) | Err(_)), "{nonsense:?}");
    }
    let mut endless = connect(&helper.socket);
    let chunk = vec![b'x'; 1 << 20];
    let start = Instant::now();
    while endless.write_all(&chunk).is_ok() {
        assert!(start.elapsed() < PATIENCE, "it reads for ever");
    }
    // Who says nothing has five seconds, and the daemon is served all the while.
    let mut silent = connect(&helper.socket);
    silent.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert!(matches!(silent.read(&mut [0; 64]), Ok(0) | Err(_)));
    let mut client = Client::new(&helper);
    client.ask(1, Question::Get { device: None });
    assert!(client.answer().is_some());
}

#[test]
fn a_second_helper_fails_and_a_second_daemon_takes_over() {
    let mut first = Helper::start(&Settings::default());
    first.lab("ON");
    first.told();
    assert_eq!(first.next(), FromHelper::Hello { version: VERSION });
    let second =
        Command::new(env!("CARGO_BIN_EXE_edge-devices")).arg("--socket").arg(&first.socket).output().expect("run");
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&second.stderr).contains("another helper has it"), "{second:?}");

    let mut client = Client::new(&first);
    client.ask(1, Question::Set { device: t1(), property: "led".into(), value: "DIM".into() });
    client.answer();
    let mut daemon = Helper::call(&first.socket, &Settings::default());
    assert!(first.is_over(), "the older connection is ended");
    assert_eq!(daemon.next(), FromHelper::Hello { version: VERSION });
    daemon.lab("ON");
    daemon.told();
    // It knew before what the daemon says, and more.
    let (_, devices) = daemon.report();
    assert_eq!(devices[0].twins[0].observed.as_ref().map(|observed| observed.value.as_str()), Some("DIM"));
}

#[test]
fn daemon_with_other_settings_gets_the_state_and_a_new_helper() {
    let other = Settings { report: Report { per_second: 3, ..Report::default() }, ..Settings::default() };
    let words = [
        serde_json::to_string(&ToHelper::Daemon {
            version: VERSION,
            node: NODE.into(),
            settings: serde_json::to_value(&other).unwrap(),
        })
        .expect("JSON"),
        serde_json::to_string(&ToHelper::Daemon {
            version: VERSION + 1,
            node: NODE.into(),
            settings: serde_json::json!({}),
        })
        .expect("JSON"),
        r#"{"daemon":{"version":99,"words":"of another build"}}"#.to_owned(),
    ];
    for word in words {
        let mut helper = Helper::start(&Settings::default());
        helper.lab("ON");
        helper.told();
        let mut client = Client::new(&helper);
        client.ask(1, Question::Set { device: t1(), property: "led".into(), value: "DIM".into() });
        client.answer();
        let mut daemon = connect(&helper.socket);
        daemon.write_all(format!("{word}\n").as_bytes()).expect("it listens");
        daemon.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut heard = String::new();
        daemon.read_to_string(&mut heard).expect("it ends");
        let mut lines = heard.lines();
        assert_eq!(lines.next(), Some(&*format!(r#"{{"hello":{{"version":{VERSION}}}}}"#)));
        assert!(lines.any(|line| line.starts_with("{\"keep\":") && line.contains("DIM")), "{heard}");
        assert_eq!(helper.exit(), Some(0));
        assert!(!helper.socket.exists());
    }
}

#[test]
fn it_ends_when_it_is_told_and_keeps_what_it_has() {
    for by_signal in [true, false] {
        let mut helper = Helper::start(&Settings::default());
        helper.lab("ON");
        helper.told();
        helper.object(Kind::Device, "t1", "device-1", device("OFF"));
        let mut client = Client::new(&helper);
        client.ask(1, Question::Set { device: t1(), property: "led".into(), value: "DIM".into() });
        client.answer();
        if by_signal {
            let pid = helper.pid().to_string();
            assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
        } else {
            helper.say(&ToHelper::End {});
        }
        assert!(helper.kept()[0].record.contains("DIM"));
        assert_eq!(helper.exit(), Some(0));
    }
    // Also by a daemon that says nothing else: the module was turned off meanwhile.
    let mut helper = Helper::start(&Settings::default());
    helper.told();
    connect(&helper.socket).write_all(b"{\"end\":{}}\n").expect("it listens");
    assert_eq!(helper.exit(), Some(0));
}

#[test]
fn without_a_daemon_it_goes_on() {
    let mut helper = Helper::start(&Settings::default());
    helper.lab("ON");
    helper.told();
    let mut client = Client::new(&helper);
    client.ask(1, Question::Watch { device: None });
    client.answer();
    helper.hang_up();
    client.ask(2, Question::Set { device: t1(), property: "led".into(), value: "DIM".into() });
    client.answer();
    let mut daemon = Helper::call(&helper.socket, &Settings::default());
    daemon.lab("ON");
    daemon.told();
    let (_, devices) = daemon.report();
    assert_eq!(devices[0].twins[0].observed.as_ref().map(|observed| observed.value.as_str()), Some("DIM"));
    assert!(daemon.kept()[0].record.contains("DIM"));
    let counters = daemon.counters();
    assert_eq!((counters["devices"].as_u64(), counters["broker"].is_null()), (Some(1), true));
    assert!(counters["text"].as_str().is_some_and(|text| text.starts_with("1, no broker configured; ")), "{counters}");
}

#[test]
fn it_says_how_it_is_called() {
    let run =
        |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_edge-devices")).args(arguments).output().expect("run");
    let version = run(&["--version"]);
    assert!(version.status.success() && version.stdout.starts_with(b"edge-devices "));
    let json: serde_json::Value = serde_json::from_slice(&run(&["version", "-o", "json"]).stdout).expect("JSON");
    assert_eq!((json["program"].as_str(), json["kubernetes"].as_str()), (Some("edge-devices"), Some("v1.36.0")));
    for wrong in
        [&[][..], &["--socket"], &["--what"], &["--socket", "x", "--log", "loud"], &["--version", "-o", "yaml"]]
    {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
    assert_eq!(run(&["--socket", "/nowhere/at/all.sock"]).status.code(), Some(1));
    // A daemon that starts it and is gone at once leaves a helper that waits.
    let folder = tempfile::tempdir().expect("temp dir");
    let socket = folder.path().join("s");
    let _process = spawn(&socket);
    drop(connect(&socket));
    std::thread::sleep(Duration::from_millis(100));
    drop(connect(&socket));
}
