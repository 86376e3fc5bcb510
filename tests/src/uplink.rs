//! A node's own network: a namespace with two uplinks to this host (for example Wi-Fi and cable), with real packet
//! loss. Owns the namespace and its links; removes both when it is dropped.
//!
//! The bridge is reached at the same address over either uplink. nftables drops the packets, because netem is a module
//! that many kernels lack; [`crate::faults`] makes delays and narrow lines.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

/// Number of namespaces of this process so far.
static COUNT: AtomicU8 = AtomicU8::new(0);

/// The namespace; [`Uplink::command`] runs a program in it.
pub struct Uplink {
    name: String,
    /// `10.213.NET.0/24` is divided between the two uplinks.
    net: u8,
}

impl Uplink {
    /// Creates the namespace with the first uplink up.
    ///
    /// # Panics
    /// This host does not allow creating namespaces or links.
    #[must_use]
    pub fn new() -> Self {
        let pid = std::process::id();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let net = u8::try_from((u32::from(count) * 83 + pid) % 250).unwrap_or_default();
        let uplink = Self { name: format!("smpt{}n{count}", pid % 100_000), net };
        ip(&["netns", "add", &uplink.name]);
        uplink.inside(&["ip", "link", "set", "lo", "up"]);
        for which in [0, 1] {
            let (near, far) = (uplink.near(which), format!("up{which}"));
            ip(&["link", "add", &near, "type", "veth", "peer", "name", &far, "netns", &uplink.name]);
            ip(&["addr", "add", &format!("{}/30", uplink.host_side(which)), "dev", &near]);
            ip(&["link", "set", &near, "up"]);
        }
        uplink.inside(&["nft", "add table inet faults"]);
        uplink.inside(&["nft", "add chain inet faults in { type filter hook input priority -300; }"]);
        uplink.inside(&["nft", "add chain inet faults out { type filter hook output priority -300; }"]);
        uplink.up(0);
        uplink
    }

    /// Creates a namespace with one uplink, to the switch of a LAN, and the LAN's router as its default gateway.
    pub(crate) fn on_a_lan(switch: &str, own: Ipv4Addr, router: Ipv4Addr) -> Self {
        let (pid, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let uplink = Self { name: format!("smpt{}n{count}", pid % 100_000), net: 0 };
        ip(&["netns", "add", &uplink.name]);
        uplink.inside(&["ip", "link", "set", "lo", "up"]);
        ip(&["link", "add", &uplink.near(0), "type", "veth", "peer", "name", "up0", "netns", &uplink.name]);
        ip(&["link", "set", &uplink.near(0), "master", switch, "up"]);
        uplink.inside(&["ip", "addr", "add", &format!("{own}/24"), "dev", "up0"]);
        uplink.inside(&["ip", "link", "set", "up0", "up"]);
        uplink.inside(&["ip", "route", "add", "default", "via", &router.to_string()]);
        uplink
    }

    /// Name of the namespace, for `ip netns exec`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the output of a command that runs inside.
    ///
    /// # Panics
    /// It fails.
    #[must_use]
    pub fn output(&self, command: &[&str]) -> String {
        let args = ["netns", "exec", &self.name].into_iter().chain(command.iter().copied());
        let output = Command::new("ip").args(args).output().expect("iproute2 is installed");
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Address of the bridge, as seen from inside.
    #[must_use]
    pub fn bridge_ip(&self) -> IpAddr {
        self.host_side(0).into()
    }

    /// A command that runs `program` inside. Only the network differs from the host's, as on a device.
    #[must_use]
    pub fn command(&self, program: &std::path::Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).arg("--").arg(program);
        command
    }

    /// Gives an uplink (0 or 1) its address and makes it the default route.
    pub fn up(&self, which: u8) {
        let (link, host) = (format!("up{which}"), self.host_side(which));
        let [a, b, c, d] = host.octets();
        let own = Ipv4Addr::new(a, b, c, d + 1);
        self.inside(&["ip", "link", "set", &link, "up"]);
        self.inside(&["ip", "addr", "replace", &format!("{own}/30"), "dev", &link]);
        self.inside(&["ip", "route", "replace", "default", "via", &host.to_string(), "dev", &link]);
    }

    /// Takes an uplink down, with its address and routes. Connections over it get no error.
    pub fn down(&self, which: u8) {
        let link = format!("up{which}");
        self.inside(&["ip", "link", "set", &link, "down"]);
        self.inside(&["ip", "addr", "flush", "dev", &link]);
    }

    /// Drops this percentage of packets in each direction.
    pub fn lose(&self, percent_in: u8, percent_out: u8) {
        for (chain, links, percent) in [("in", "iifname", percent_in), ("out", "oifname", percent_out)] {
            self.inside(&["nft", &format!("flush chain inet faults {chain}")]);
            let chance = match percent {
                0 => continue,
                1..100 => format!("numgen random mod 100 lt {percent} "),
                _ => String::new(),
            };
            self.inside(&["nft", &format!("add rule inet faults {chain} meta {links} \"up*\" {chance}drop")]);
        }
    }

    /// Bytes that crossed the uplinks since they were created, with all headers: into the node, out of it.
    ///
    /// # Panics
    /// The kernel does not have the counters.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        let read = |which, what| {
            let path = format!("/sys/class/net/{}/statistics/{what}_bytes", self.near(which));
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
            text.trim().parse::<u64>().unwrap_or_default()
        };
        // The host's ends send what the node receives.
        (read(0, "tx") + read(1, "tx"), read(0, "rx") + read(1, "rx"))
    }

    fn near(&self, which: u8) -> String {
        format!("{}u{which}", self.name)
    }

    fn host_side(&self, which: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 213, self.net, which * 4 + 1)
    }

    /// Runs a command inside.
    ///
    /// # Panics
    /// It fails.
    pub fn inside(&self, command: &[&str]) {
        let (program, args) = command.split_first().expect("a program");
        let mut all = vec!["netns", "exec", &self.name, program];
        all.extend(args);
        ip(&all);
    }
}

impl Default for Uplink {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Uplink {
    fn drop(&mut self) {
        // Links are removed with their namespace, but only after its last process has ended: remove them first.
        for which in [0, 1] {
            let _ = Command::new("ip").args(["link", "del", &self.near(which)]).output();
        }
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

pub(crate) fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().expect("iproute2 is installed");
    assert!(output.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}
