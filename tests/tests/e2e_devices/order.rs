//! In any order of starts and restarts, the mapper has the Device as it is, and the API has what the mapper reports
//! (D2, D9).

use std::path::{Path, PathBuf};
use std::time::Duration;

use sampan_tests::process::signal;
use sampan_tests::wait::{patient, until};
use sampan_tests::{Cluster, EdgeNode, can_run};
use serde_json::json;

use super::mapper::Mapper;
use super::{SOON, device, install, model, twin};

/// Parts of a site.
#[derive(Clone, Copy)]
enum Part {
    Definitions,
    Model,
    Device,
    Mapper,
    Node,
}

use Part::{Definitions, Device, Mapper as Driver, Model, Node};

struct Lab {
    mapper: Option<Mapper>,
    node: EdgeNode,
    folder: PathBuf,
    cluster: Cluster,
}

impl Lab {
    fn new(test: &str) -> Self {
        let cluster = Cluster::start(test);
        let node = EdgeNode::prepare(&cluster, "edge");
        let folder = cluster.folder().join("kubeedge");
        node.configure(&format!("device-twin: {{dmi: {{folder: '{}'}}}}\n", folder.display()));
        Self { mapper: None, node, folder, cluster }
    }

    fn add(&mut self, part: Part) {
        match part {
            Definitions => install(&self.cluster),
            Model => self.cluster.kubectl.apply(&model().to_string()),
            Device => self.cluster.kubectl.apply(&device("t1", &self.node.name, "ON").to_string()),
            Driver => self.mapper = Some(Mapper::early(&self.folder)),
            Node => {
                self.node.start();
                self.node.wait_ready();
            }
        }
    }

    fn mapper(&mut self) -> &mut Mapper {
        self.mapper.as_mut().expect("it runs")
    }

    /// Checks that the next call of the mapper has this value, and that the API gets its report.
    fn works(&mut self, led: &str) {
        let patch = json!({"spec": {"properties": [
            {"name": "temp", "reportToCloud": true}, {"name": "led", "reportToCloud": true, "desired": {"value": led}},
        ]}});
        let _ = self.cluster.kubectl.ok(&["patch", "device", "t1", "--type", "merge", "-p", &patch.to_string()]);
        assert_eq!(self.mapper().called(), ("UpdateDevice".to_owned(), Some(led.to_owned())));
        let namespace = self.cluster.kubectl.namespace.clone();
        self.mapper().obeys(&namespace, "led", led);
        until(patient(SOON * 4), "the value in the API", || {
            let status = self.cluster.kubectl.get("devicestatus", "t1")?;
            let led_there = twin(&status, "led");
            let both = [&led_there["reported"]["value"], &led_there["observedDesired"]["value"]];
            if both.into_iter().all(|value| value == led) { Ok(()) } else { Err(led_there.to_string()) }
        });
    }

    fn helper(&self) -> Option<u32> {
        super::off::helpers(self.node.root()).first().copied()
    }
}

fn wait_socket(folder: &Path) {
    until(Duration::from_secs(20), "the helper takes calls", || {
        std::os::unix::net::UnixStream::connect(folder.join("dmi.sock")).map(drop).map_err(|error| error.to_string())
    });
}

fn any_order_ends_the_same(test: &str, order: [Part; 5]) {
    if !can_run() {
        return;
    }
    let mut lab = Lab::new(test);
    for part in order {
        lab.add(part);
    }
    // The mapper gets the Device when it registers, or by a call.
    if lab.mapper().serves() == 0 {
        // A bridge checks once a minute whether definitions exist.
        assert_eq!(lab.mapper().called_within(Duration::from_secs(90)).0, "CreateDeviceModel");
        assert_eq!(lab.mapper().called(), ("RegisterDevice".to_owned(), Some("ON".to_owned())));
    }
    lab.works("A");

    let pid = lab.helper().expect("it runs");
    signal(pid, "KILL");
    until(Duration::from_secs(10), "another helper", || match lab.helper() {
        Some(other) if other != pid => Ok(()),
        other => Err(format!("{other:?}")),
    });
    wait_socket(&lab.folder);
    lab.works("B");
    lab.node.kill();
    lab.node.start();
    lab.works("C");
    lab.cluster.kill_bridge();
    lab.cluster.start_bridge();
    lab.works("D");
    lab.mapper = None;
    lab.add(Driver);
    assert_eq!(lab.mapper().serves(), 1);
    lab.works("E");
}

#[test]
fn the_node_and_its_mapper_are_there_before_anybody_knows_of_devices() {
    any_order_ends_the_same("devices-order-node", [Node, Driver, Definitions, Device, Model]);
}

#[test]
fn the_mapper_is_there_before_the_node() {
    any_order_ends_the_same("devices-order-mapper", [Driver, Definitions, Device, Model, Node]);
}

#[test]
fn the_mapper_comes_last() {
    any_order_ends_the_same("devices-order-last", [Definitions, Model, Node, Device, Driver]);
}
