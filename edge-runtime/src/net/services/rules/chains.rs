//! Chains that choose an endpoint. Pure.

use std::fmt::Write;

use super::{Part, hash};
use crate::net::services::endpoints::Endpoint;
use crate::net::services::item::{Item, What, family};

impl Part<'_> {
    /// The chain that chooses among these; made if it is not there yet.
    pub(super) fn service_chain(&mut self, endpoints: &[Endpoint], local: bool) -> String {
        let name = format!("{}-{}", if local { "local" } else { "service" }, self.name);
        let (ip, protocol) = (family(self.v6), self.protocol);
        let rules = match self.view.affinity_seconds {
            None => {
                let to = endpoints.iter().enumerate().map(|(index, to)| format!("{index} : {} . {}", to.ip, to.port));
                let to: Vec<String> = to.collect();
                let count = endpoints.len();
                format!(
                    "meta l4proto {protocol} dnat {ip} addr . port to numgen random mod {count} map {{ {} }}\n",
                    to.join(", ")
                )
            }
            Some(seconds) => {
                // K8s core/v1, `ClientIPConfig`.
                let seconds = seconds.clamp(1, 86_400);
                let names: Vec<(String, String)> =
                    endpoints.iter().map(|endpoint| self.endpoint_chain(endpoint, seconds)).collect();
                let mut rules = String::new();
                for (set, chain) in &names {
                    let _ = writeln!(rules, "{ip} saddr @{set} goto {chain}");
                }
                let to = names.iter().enumerate().map(|(index, (_, chain))| format!("{index} : goto {chain}"));
                let to: Vec<String> = to.collect();
                let _ = writeln!(rules, "numgen random mod {} vmap {{ {} }}", names.len(), to.join(", "));
                rules
            }
        };
        self.chain(name.clone(), rules);
        name
    }

    /// Adds the chain that stores the clients of an endpoint (session affinity), and its set.
    fn endpoint_chain(&mut self, endpoint: &Endpoint, seconds: u32) -> (String, String) {
        let (ip, protocol) = (family(self.v6), self.protocol);
        let at = format!("{}/{}", endpoint.ip.to_string().replace(':', "."), endpoint.port);
        let id = hash(&[&self.name, &at]);
        let (set, chain) = (format!("affinity-{id}-{at}"), format!("endpoint-{id}-{at}"));
        let addr = if self.v6 { "ipv6_addr" } else { "ipv4_addr" };
        let spec = format!("type {addr}; flags dynamic,timeout; timeout {seconds}s;");
        self.items.insert(Item { v6: self.v6, what: What::Set(set.as_str().into()) }, spec);
        let to = if self.v6 { format!("[{}]", endpoint.ip) } else { endpoint.ip.to_string() };
        let rules = format!("update @{set} {{ {ip} saddr }}\nmeta l4proto {protocol} dnat to {to}:{}\n", endpoint.port);
        self.chain(chain.clone(), rules);
        (set, chain)
    }

    /// Adds the chain for traffic from outside the cluster.
    pub(super) fn external_chain(&mut self, only_local: bool, cluster: &[Endpoint], local: &[Endpoint]) -> String {
        let name = format!("external-{}", self.name);
        let all = self.service_chain(cluster, false);
        let rules = if only_local {
            // From this node itself, and its pods, the Service is as good as its cluster address.
            let subnets = self.here.subnets.iter().filter(|subnet| subnet.is_ipv4() != self.v6);
            let of_pods = subnets.map(|subnet| format!("{} saddr {subnet} goto {all}\n", family(self.v6)));
            let mut rules: String = of_pods.collect();
            let _ = write!(rules, "fib saddr type local jump mark-for-masquerade\nfib saddr type local goto {all}\n");
            if !local.is_empty() {
                let _ = writeln!(rules, "goto {}", self.service_chain(local, true));
            }
            rules
        } else {
            format!("jump mark-for-masquerade\ngoto {all}\n")
        };
        self.chain(name.clone(), rules);
        name
    }
}
