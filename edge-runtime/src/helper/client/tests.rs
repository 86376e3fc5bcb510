//! Connection to a helper.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixListener;

use sampan_devices_control::{FromHelper, ToHelper, VERSION};

use super::*;
use crate::helper::programs::DEVICES;

/// Returns what is heard of the helper at this socket until it ends. It is pinged all the time.
fn heard_of(socket: PathBuf) -> Vec<String> {
    let (news, heard) = smol::channel::unbounded();
    let greeting = lines::line(&ToHelper::Client {});
    let helper = Helper { program: &DEVICES, path: "/nonexistent".into(), socket, greeting };
    let (teller, work) = helper.keep(news, |event| event.read::<FromHelper>());
    let mut said: Vec<String> = Vec::new();
    let told = async {
        while !said.iter().any(|news| news.starts_with("Down")) {
            teller.tell(1, &ToHelper::Ping {});
            Timer::after(Duration::from_millis(10)).await;
            while let Ok(news) = heard.try_recv() {
                said.push(format!("{news:?}"));
            }
        }
    };
    smol::block_on(told.or(work));
    said
}

#[test]
fn last_messages_of_an_ending_helper_are_read() {
    let temp = tempfile::tempdir().unwrap();
    let socket = temp.path().join("devices.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let ends = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let hello = serde_json::to_string(&FromHelper::Hello { version: VERSION }).unwrap();
        writeln!(stream, "{hello}").unwrap();
        BufReader::new(&stream).read_line(&mut String::new()).unwrap();
        stream.shutdown(Shutdown::Read).unwrap();
        // The daemon writes meanwhile, and finds that the helper does not read.
        std::thread::sleep(Duration::from_millis(300));
        let last = serde_json::to_string(&FromHelper::Keep { rows: Vec::new(), durable: true }).unwrap();
        writeln!(stream, "{last}").unwrap();
    });
    let said = heard_of(socket);
    ends.join().unwrap();
    let kept = said.iter().position(|news| news.contains("Keep"));
    assert!(kept.is_some_and(|at| at + 1 < said.len()), "{said:?}");
}

#[test]
fn helper_is_greeted_and_pinged() {
    let temp = tempfile::tempdir().unwrap();
    let socket = temp.path().join("devices.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let helper = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        writeln!(stream, "{{\"hello\":{{\"version\":{VERSION}}}}}").unwrap();
        let lines = BufReader::new(stream).lines().take(2);
        lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect::<Vec<ToHelper>>()
    });
    let said = heard_of(socket);
    assert!(said.iter().any(|news| news == "Up(1)"), "{said:?}");
    assert_eq!(helper.join().unwrap(), [ToHelper::Client {}, ToHelper::Ping {}]);
}

#[test]
fn other_version_or_unknown_line_ends_the_connection() {
    for (lines, up, why) in [
        (format!("{{\"hello\":{{\"version\":{}}}}}\n", VERSION + 1), false, "it speaks version"),
        ("{\"pong\":{}}\n".to_owned(), false, "its first line is no greeting"),
        (format!("{{\"hello\":{{\"version\":{VERSION}}}}}\n{{\"other\":{{}}}}\n"), true, "no line of a helper"),
    ] {
        let temp = tempfile::tempdir().unwrap();
        let socket = temp.path().join("devices.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let helper = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(lines.as_bytes()).unwrap();
            // Until the daemon has closed the connection.
            BufReader::new(stream).lines().map_while(Result::ok).for_each(drop);
        });
        let said = heard_of(socket);
        helper.join().unwrap();
        assert_eq!(said.iter().any(|news| news == "Up(1)"), up, "{said:?}");
        assert!(said.last().is_some_and(|last| last.starts_with("Down(") && last.contains(why)), "{said:?}");
    }
}

#[test]
fn line_that_is_too_long_is_not_told() {
    let (sender, told) = bounded(LINES);
    let teller = Teller { program: &DEVICES, lines: sender, waiting: Rc::default() };
    let record = "x".repeat(DEVICES.max_line);
    assert!(teller.tell(1, &ToHelper::Kept { uid: "u".to_owned(), record }), "it does not wait for room");
    assert!(told.is_empty());
    assert!(teller.tell(1, &ToHelper::Ping {}));
    assert_eq!(told.try_recv(), Ok((1, PING.to_vec())));
}
