//! Text of the table of one family. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::Family;
use super::lines::joined;
use crate::net::policy::world::{family, table};
use crate::sys::gather::Gather;

impl Family<'_, '_> {
    pub(super) fn text(&self) -> String {
        let (v6, world) = (self.v6, self.world);
        if self.isolated.iter().all(BTreeMap::is_empty) {
            return String::new();
        }
        let (ip, addr) = (family(v6), if v6 { "ipv6_addr" } else { "ipv4_addr" });
        let mut text = format!("table {ip} {} {{\n", table(world.bridge));
        for (set, number) in &self.sets {
            let _ = writeln!(text, "\tset set-{number} {{ {set}; }}");
        }
        let mut chain = |name: &str, rules: &str| {
            let _ = writeln!(text, "\tchain {name} {{");
            for rule in rules.lines() {
                let _ = writeln!(text, "\t\t{rule}");
            }
            text.push_str("\t}\n");
        };
        self.chains.values().flatten().for_each(|(name, rules)| chain(name, rules));
        self.groups.iter().for_each(|(rules, number)| chain(&format!("pods-{number}"), rules));
        // A pod reaches itself through a Service, whatever policies say.
        let own: BTreeSet<String> =
            self.isolated.iter().flat_map(BTreeMap::keys).map(|ip| format!("{ip} . {ip}")).into_set();
        let _ = writeln!(text, "\tset own {{ type {addr} . {addr}; elements = {{ {} }}; }}", joined(&own));
        let (bridge, subnet) = (world.bridge, self.subnet);
        for (name, end, priority, isolated) in ["in", "out"]
            .iter()
            .zip(["daddr", "saddr"])
            .zip([-5, -6])
            .zip(&self.isolated)
            .map(|(((n, e), p), i)| (n, e, p, i))
        {
            let to: Vec<String> = isolated.iter().map(|(ip, group)| format!("{ip} : goto pods-{group}")).collect();
            let elements = if to.is_empty() { String::new() } else { format!(" elements = {{ {} }};", joined(&to)) };
            let _ = writeln!(text, "\tmap isolated-{name} {{ type {addr} : verdict;{elements} }}");
            let _ = writeln!(
                text,
                "\tchain forward-{name} {{\n\t\ttype filter hook forward priority {priority}; policy accept;\n\
                 \t\tct state established,related accept"
            );
            if *name == "out" {
                // Addresses of this node's pods do not come from outside.
                let _ = writeln!(text, "\t\tiifname != \"{bridge}\" {ip} saddr {subnet} drop");
            }
            let _ =
                writeln!(text, "\t\t{ip} saddr . {ip} daddr @own accept\n\t\t{ip} {end} vmap @isolated-{name}\n\t}}");
        }
        text.push_str("}\n");
        text
    }
}
