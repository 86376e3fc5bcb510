//! Serves `healthCheckNodePort` of Services with `externalTrafficPolicy: Local`: tells load balancers how many ready
//! endpoints this node has. The answer is that of K8s pkg/proxy/healthcheck/service_health.go.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::rc::Rc;
use std::time::Duration;

use async_executor::Task;
use serde_json::json;
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::{Async, Timer};

use super::limits::Places;
use super::zone::Health;
use crate::sys::tasks::Tasks;
use crate::sys::time::within;
use crate::sys::vec_map::VecMap;

/// Maximum numbers of ports, of connections, and of connections of one client.
const MOST_PORTS: usize = 256;
const MOST: usize = 64;
const MOST_OF_ONE: usize = 16;
/// Time for a request and its answer.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST: usize = 4_096;

/// The open health check ports.
pub struct Checks {
    tasks: Tasks,
    places: Rc<Places>,
    open: RefCell<VecMap<u16, Open>>,
}

#[derive(Default)]
struct Open {
    /// Content of the answer.
    told: Rc<RefCell<Health>>,
    /// `None` while the port cannot be bound.
    task: Option<Task<()>>,
}

impl Checks {
    pub fn new(tasks: Tasks) -> Self {
        Self { tasks, places: Places::new(MOST, MOST_OF_ONE), open: RefCell::default() }
    }

    /// Opens the ports of `wanted`, and closes all others.
    pub fn set(&self, wanted: Vec<Health>) {
        let mut open = self.open.borrow_mut();
        open.retain(|port, _| wanted.iter().any(|health| health.port == *port));
        for health in wanted.into_iter().take(MOST_PORTS) {
            let port = health.port;
            let at = open.get_or_default(port);
            *at.told.borrow_mut() = health;
            if at.task.is_none() {
                match listen(port) {
                    Ok(listener) => {
                        let serve = serve(self.tasks.clone(), Rc::clone(&self.places), listener, Rc::clone(&at.told));
                        at.task = Some(self.tasks.spawn(serve));
                    }
                    // The next message of the daemon retries it.
                    Err(error) => log::warn!("health checks at port {port}: {error}"),
                }
            }
        }
    }
}

/// Listens on IPv6 and IPv4, or on IPv4 if the node does not have IPv6.
fn listen(port: u16) -> io::Result<Async<TcpListener>> {
    let any: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    let listener = TcpListener::bind((any[0], port)).or_else(|_| TcpListener::bind((any[1], port)))?;
    Async::new(listener)
}

async fn serve(tasks: Tasks, places: Rc<Places>, listener: Async<TcpListener>, told: Rc<RefCell<Health>>) {
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            // Out of descriptors: wait until other connections end.
            Timer::after(Duration::from_millis(100)).await;
            continue;
        };
        let Some(place) = places.enter(from.ip()) else { continue };
        let told = Rc::clone(&told);
        let work = async move {
            let _ = within(PATIENCE, answer(stream, &told)).await;
            drop(place);
        };
        tasks.spawn(work).detach();
    }
}

async fn answer(mut stream: Async<TcpStream>, told: &RefCell<Health>) -> io::Result<()> {
    let mut request: Vec<u8> = Vec::new();
    // The answer is the same for every path.
    while !request.windows(4).any(|four| four == b"\r\n\r\n") {
        let mut some = [0; 512];
        let length = stream.read(&mut some).await?;
        if length == 0 || request.len() > LONGEST {
            return Ok(());
        }
        request.extend(some.iter().take(length));
    }
    let response = response(&told.borrow());
    stream.write_all(response.as_bytes()).await?;
    stream.close().await
}

fn response(health: &Health) -> String {
    let status = if health.local > 0 { "200 OK" } else { "503 Service Unavailable" };
    let body = json!({
        "service": {"namespace": health.namespace, "name": health.name},
        "localEndpoints": health.local,
        "serviceProxyHealthy": true,
    });
    let body = body.to_string();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\
         X-Load-Balancing-Endpoint-Weight: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        health.local,
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn health(port: u16, local: usize) -> Health {
        Health { namespace: "shop".into(), name: "web".into(), port, local }
    }

    fn get(port: u16) -> io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    }

    /// Calls `ask` while the ports of `wanted` are served.
    fn after<T: Send + 'static>(
        tasks: &Tasks,
        checks: &Checks,
        wanted: Vec<Health>,
        ask: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        checks.set(wanted);
        smol::block_on(tasks.run(smol::unblock(ask)))
    }

    #[test]
    fn health_check_tells_the_number_of_ready_pods_here() {
        let port = listen(0).unwrap().get_ref().local_addr().unwrap().port();
        let tasks = Tasks::default();
        let checks = Checks::new(tasks.clone());
        let text = after(&tasks, &checks, vec![health(port, 2)], move || get(port)).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        for line in ["Content-Type: application/json", "X-Content-Type-Options: nosniff"] {
            assert!(head.contains(line), "{head}");
        }
        assert!(head.contains("X-Load-Balancing-Endpoint-Weight: 2"), "{head}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let wanted = json!({"service": {"namespace": "shop", "name": "web"}, "localEndpoints": 2,
            "serviceProxyHealthy": true});
        assert_eq!(body, wanted);
        let text = after(&tasks, &checks, vec![health(port, 0)], move || get(port)).unwrap();
        assert!(text.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{text}");
        // Silent connections do not use up the places of others.
        let answered = after(&tasks, &checks, vec![health(port, 1)], move || {
            let slow: Vec<TcpStream> =
                (0..MOST_OF_ONE - 1).map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap()).collect();
            let text = get(port);
            drop(slow);
            text
        });
        assert!(answered.unwrap().starts_with("HTTP/1.1 200"));
        // Without the Service the port closes.
        let refused = after(&tasks, &checks, Vec::new(), move || {
            // Connections from before the port was closed are reset.
            let mut said = (0..100).map(|_| {
                std::thread::sleep(Duration::from_millis(10));
                get(port).map_err(|error| error.kind())
            });
            said.find(|said| *said == Err(io::ErrorKind::ConnectionRefused))
        });
        assert!(refused.is_some());
    }
}
