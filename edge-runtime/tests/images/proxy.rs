//! Pulls through an HTTP proxy.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::node::Node;
use crate::wire::{Served, Server, layer};

/// Leads every tunnel to `target`, and keeps the requests for them. Lives as long as the test process.
fn proxy(target: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            // Nothing follows the request before it is answered.
            let lines = BufReader::new(client.try_clone().unwrap()).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            log.lock().unwrap().push(head.join("\n"));
            let mut server = TcpStream::connect(target).unwrap();
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || std::io::copy(&mut server, &mut client));
        }
    });
    (address, asked)
}

#[test]
fn p1_3_pull_through_a_proxy_shows_no_password() {
    let served = Served::new(&[layer("file", b"content")]);
    let server = Server::start(move |request| served.answer(request));
    let (address, asked) = proxy(server.address);
    let node = Node::new();
    let user_file = node.root().join("proxy.user");
    std::fs::write(&user_file, "name:hunter22\n").unwrap();
    let registry = "registry: [{host: 'registry.invalid:5000', plain-http: true}]";
    node.config(&format!("{registry}\nproxy: {{url: 'http://{address}', user-file: {}}}\n", user_file.display()));
    let mut command = node.command("pull");
    let done = command.arg("registry.invalid:5000/app:v1").env("EDGE_RUNTIME_LOG", "debug").output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let asked = asked.lock().unwrap();
    let target = "registry.invalid:5000";
    // name:hunter22
    let login = "bmFtZTpodW50ZXIyMg==";
    let wanted = format!("CONNECT {target} HTTP/1.1\nHost: {target}\nProxy-Authorization: Basic {login}");
    assert!(!asked.is_empty() && asked.iter().all(|head| *head == wanted), "{asked:?}");
    assert!(!said.contains("hunter22") && !said.contains(login), "{said}");
}

#[test]
fn environment_names_no_proxy() {
    let served = Served::new(&[layer("file", b"content")]);
    let server = Server::start(move |request| served.answer(request));
    let node = Node::new();
    node.plain_http(&server.address.to_string());
    let mut command = node.command("pull");
    for name in ["ALL_PROXY", "HTTPS_PROXY", "http_proxy"] {
        // Nothing listens there.
        command.env(name, "http://127.0.0.1:1");
    }
    let done = command.arg(server.image("app:v1")).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
