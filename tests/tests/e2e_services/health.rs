//! Health check ports for load balancers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use sampan_tests::{Cluster, can_run, until};
use serde_json::json;

use super::{server, service};

fn get(port: u16) -> Result<String, String> {
    let told = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(told)?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).map_err(told)?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").map_err(told)?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(told).map(|_| text)
}

fn says(port: u16, wanted: &str) {
    until(Duration::from_secs(15), &format!("port {port} says {wanted}"), || {
        let said = get(port)?;
        if said.contains(wanted) { Ok(()) } else { Err(said) }
    });
}

#[test]
fn s02_health_check_port_reports_ready_pods_also_offline() {
    if !can_run() {
        return;
    }
    const PORT: u16 = 31_877;
    let mut cluster = Cluster::start("health");
    let mut node = cluster.node("edge");
    let more = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": PORT});
    let kubectl = &cluster.kubectl;
    kubectl.apply_all(&[service("web", "web", &more), server("a", &node.name, "web")]);
    kubectl.wait_ready("a");
    says(PORT, "\"localEndpoints\":1");
    says(PORT, "HTTP/1.1 200 OK");
    cluster.kill_bridge();
    node.edge_ok(&["exec", "a", "--", "rm", "/tmp/ready"]);
    says(PORT, "HTTP/1.1 503");
    node.edge_ok(&["exec", "a", "--", "touch", "/tmp/ready"]);
    says(PORT, "HTTP/1.1 200 OK");
    // It survives the daemon, and is removed with the Service.
    node.kill();
    says(PORT, "HTTP/1.1 200 OK");
    node.start();
    cluster.start_bridge();
    let _ = cluster.kubectl.ok(&["delete", "service", "web"]);
    until(Duration::from_secs(20), "nobody listens any more", || match TcpStream::connect(("127.0.0.1", PORT)) {
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Ok(()),
        other => Err(format!("{other:?}")),
    });
}
