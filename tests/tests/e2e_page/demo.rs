//! A water works as a site for pictures: eight gateways, what runs on them, devices with readings, two fleet jobs. One gateway is really
//! down and one pod really fails. Each gateway has a network of its own. Knows no browser.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use sampan_tests::ports::free_address;
use sampan_tests::process::Process;
use sampan_tests::{Cluster, EdgeNode, FakeClock, Kubectl, Lan, until};
use serde_json::Value;

use objects::{IMAGE, NAMESPACE, READINGS, REGISTRY};

mod objects;

/// The gateway whose pages are shown: it has devices, and the pod that fails.
pub(crate) const SHOWN: &str = "reservoir-hill";
/// The gateway that is down.
pub(crate) const DOWN: &str = "pump-south";

/// Name, kind of station and district of each gateway.
const GATEWAYS: [(&str, &str, &str); 8] = [
    ("intake-river", "intake", "river"),
    ("pump-east", "pump", "east"),
    (DOWN, "pump", "south"),
    ("pump-west", "pump", "west"),
    (SHOWN, "reservoir", "hill"),
    ("reservoir-park", "reservoir", "park"),
    ("treatment-1", "treatment", "river"),
    ("treatment-2", "treatment", "river"),
];
/// Workloads that come up; another one fails.
const WORKLOADS: [&str; 4] =
    ["daemonset/telemetry", "daemonset/pump-control", "deployment/water-quality", "deployment/level-control"];
/// Port of the MQTT listener on the gateway with devices, in its own network.
const MQTT: &str = "1884";

/// Longest wait for anything to happen.
const PATIENCE: Duration = Duration::from_secs(180);
/// Time without the daemon, which the link's timeline then shows.
const OUTAGE: Duration = Duration::from_secs(20);
/// Age of the site when it is shown.
const AGE: Duration = Duration::from_secs(300);

/// The running site. Ended, with all that runs on it, when it is dropped.
pub(crate) struct WaterWorks {
    gateways: Vec<EdgeNode>,
    pub(crate) cluster: Cluster,
    kubectl: Kubectl,
    begun: Instant,
    _registry: Process,
    _lan: Lan,
}

impl WaterWorks {
    /// Starts the site, with everything as it should be but the one pod. Writes the folder of the site's files into `note`.
    pub(crate) fn start(page: SocketAddr, note: &Path) -> Self {
        let lan = Lan::new();
        let cluster =
            Cluster::start_at("pictures", lan.router(), &["--page", &page.to_string(), "--page-title", "Water works"]);
        std::fs::write(note, cluster.folder().as_os_str().as_encoded_bytes()).expect("written");
        let kubectl = Kubectl { namespace: NAMESPACE.to_owned(), ..cluster.kubectl.clone() };
        define(&kubectl);
        let images = SocketAddr::new(lan.router(), free_address().port());
        let registry = serve_images(cluster.folder(), images);
        let gateways = start_gateways(&cluster, &lan, images);
        push_image(cluster.folder(), images);

        kubectl.apply_all(&objects::workloads());
        kubectl.apply_all(&objects::devices());
        for workload in WORKLOADS {
            let _ = kubectl.ok(&["rollout", "status", workload, "--timeout=300s"]);
        }
        let site = Self { gateways, cluster, kubectl, begun: Instant::now(), _registry: registry, _lan: lan };
        for (device, property, value) in READINGS {
            until(PATIENCE, &format!("the reading of {device} is in the API"), || {
                publish(site.gateway(SHOWN), device, property, value)?;
                let status = site.kubectl.get("devicestatus", device)?["status"]["twins"].to_string();
                if status.contains(&format!("\"{value}\"")) { Ok(()) } else { Err(status) }
            });
        }
        site
    }

    pub(crate) fn gateway(&self, name: &str) -> &EdgeNode {
        self.gateways.iter().find(|gateway| gateway.name == name).expect("a gateway")
    }

    fn gateway_mut(&mut self, name: &str) -> &mut EdgeNode {
        self.gateways.iter_mut().find(|gateway| gateway.name == name).expect("a gateway")
    }

    /// Gives the site a history: an outage of one link, a gateway that stays down, two fleet jobs.
    pub(crate) fn live(&mut self) {
        self.gateway_mut(SHOWN).kill();
        std::thread::sleep(OUTAGE);
        self.gateway_mut(SHOWN).start();
        self.gateway_mut(DOWN).kill();
        let kubectl = &self.kubectl;
        until(PATIENCE, "the cluster hears nothing of the gateway that is down", || {
            let node = kubectl.get("node", DOWN)?;
            let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
            let unknown = conditions.any(|one| one["type"] == "Ready" && one["status"] == "Unknown");
            if unknown { Ok(()) } else { Err(node["status"]["conditions"].to_string()) }
        });
        // The upgrade waits for a confirmation, and holds up no other job.
        let [images, upgrade] = objects::jobs();
        kubectl.apply_all(&[upgrade]);
        wait_counts(kubectl, "nodeupgradejob/to-1-4", &[("total", 2), ("inProgress", 1), ("pending", 1)]);
        kubectl.apply_all(&[images]);
        let (all, up) = (GATEWAYS.len(), GATEWAYS.len() - 1);
        wait_counts(kubectl, "imageprepulljob/telemetry-2-4", &[("total", all), ("successful", up), ("pending", 1)]);
        until(PATIENCE, "a pod fails again and again", || {
            let pods = kubectl.run(&["get", "pods", "-l", "app=leak-report", "-o", "json"])?;
            if pods.contains("CrashLoopBackOff") { Ok(()) } else { Err(pods) }
        });
        std::thread::sleep(AGE.saturating_sub(self.begun.elapsed()));
    }
}

/// Makes the kinds of devices and fleet jobs known, and the namespace.
fn define(kubectl: &Kubectl) {
    for kinds in ["devices", "operations"] {
        let file = format!("{}/../deploy/bridge/{kinds}/crds.yaml", env!("CARGO_MANIFEST_DIR"));
        let _ = kubectl.ok(&["apply", "-f", &file]);
    }
    let _ = kubectl.ok(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]);
    kubectl.apply(&format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n"));
}

/// Starts all gateways, which find the site's registry at `images`, and waits until they are Ready.
fn start_gateways(cluster: &Cluster, lan: &Lan, images: SocketAddr) -> Vec<EdgeNode> {
    let url = format!("https://{}", cluster.listen);
    let mut env = FakeClock::new(cluster.folder()).env();
    // TIME_OK of adjtimex(2): that this host's clock may have no source of time is nothing to show.
    env.push(("FAKE_CLOCK_STATE".to_owned(), "0".to_owned()));
    let mut gateways = Vec::new();
    for (place, (name, station, district)) in (11_u8..).zip(GATEWAYS) {
        let mut gateway = EdgeNode::prepare_behind(cluster, name, &url, Some(lan.place(place)));
        let mut config = format!(
            "labels: {{station: {station}, district: {district}}}\n\
             registry: [{{host: {REGISTRY}, mirrors: ['http://{images}']}}]\n"
        );
        if name == SHOWN {
            config += &format!("device-twin: {{listen: {{address: '127.0.0.1:{MQTT}'}}}}\n");
        }
        gateway.configure(&config);
        gateway.env.clone_from(&env);
        gateway.start();
        gateways.push(gateway);
    }
    for gateway in &gateways {
        gateway.wait_ready();
    }
    gateways
}

/// Starts a registry for the fleet job, with its files in `folder`.
fn serve_images(folder: &Path, address: SocketAddr) -> Process {
    let (config, log) = (folder.join("registry.yml"), folder.join("registry.log"));
    std::fs::write(&config, objects::registry(address, &folder.join("registry")).to_string()).expect("written");
    let process = Process::start(Command::new("docker-registry").arg("serve").arg(config), &log);
    until(Duration::from_secs(15), "the registry listens", || {
        std::net::TcpStream::connect(address).map(drop).map_err(|error| error.to_string())
    });
    process
}

/// Pushes the image that all pods have under the name that the fleet job asks for.
fn push_image(folder: &Path, registry: SocketAddr) {
    let archive = format!("docker-archive:{}", folder.join("busybox.tar").display());
    let mut command = Command::new("skopeo");
    command.args(["copy", "-q", "--insecure-policy", "--dest-tls-verify=false"]);
    command.arg(archive).arg(format!("docker://{registry}/{IMAGE}"));
    let output = command.output().expect("skopeo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Publishes a reading at the gateway, as a sensor does.
fn publish(gateway: &EdgeNode, device: &str, property: &str, value: &str) -> Result<(), String> {
    let topic = format!("$hw/events/device/{NAMESPACE}/{device}/twin/update");
    let uplink = gateway.uplink.as_ref().expect("it has one");
    let mut command = uplink.command(Path::new("mosquitto_pub"));
    command.args(["-h", "127.0.0.1", "-p", MQTT, "-q", "1", "-t", &topic]);
    let output = command.arg("-m").arg(objects::reading(property, value).to_string()).output().expect("nsenter starts");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Waits until a fleet job has these numbers of nodes.
fn wait_counts(kubectl: &Kubectl, job: &str, wanted: &[(&str, usize)]) {
    until(PATIENCE, &format!("{job} is so far"), || {
        let text = kubectl.run(&["get", job, "-o", "json"])?;
        let job: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let counts = &job["status"]["counts"];
        let so_far = wanted.iter().all(|(name, number)| counts[name] == *number);
        if so_far { Ok(()) } else { Err(job["status"].to_string()) }
    });
}
