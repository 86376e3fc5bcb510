//! Connection to the helper.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixListener;

use super::*;

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
    let said = Rc::new(RefCell::new(Vec::new()));
    let helper = Helper { program: "/nonexistent".into(), socket, node: "n".into(), settings: serde_json::json!({}) };
    let heard = Rc::clone(&said);
    let (teller, work) = helper.keep(move |news| {
        heard.borrow_mut().push(format!("{news:?}"));
        async {}
    });
    let told = async {
        while !said.borrow().iter().any(|news| news.starts_with("Down")) {
            teller.tell(1, ToHelper::Ping {});
            Timer::after(Duration::from_millis(10)).await;
        }
    };
    smol::block_on(told.or(work));
    ends.join().unwrap();
    let said = said.borrow();
    let kept = said.iter().position(|news| news.contains("Keep"));
    assert!(kept.is_some_and(|at| at + 1 < said.len()), "{said:?}");
}
