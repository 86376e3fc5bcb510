//! Addresses of the local API. Those for pods of CNI plugins are on a link of their own, which the kernel may refuse for
//! a while: memory, or a link of that name.

use std::net::IpAddr;
use std::time::Duration;

use async_executor::Task;
use smol::Timer;

use crate::config::NetworkMode;
use crate::launch::Launch;
use crate::net::dns_link;
use crate::node::context::Context;
use crate::pod::backoff::pause_after;

/// Where the helper listens: the gateways of pods on the bridge, and an address of its own for those of plugins. It waits
/// for an address that is not there yet.
pub(super) fn all(cx: &Context, launch: &Launch) -> Vec<IpAddr> {
    let mode = cx.config.network.mode;
    let mut all = Vec::new();
    if mode != NetworkMode::Cni {
        all.extend(launch.sandboxes.teardown.network.settings().subnets.iter().map(|subnet| subnet.gateway()));
    }
    if mode != NetworkMode::Builtin {
        all.extend(dns_link::api_addresses());
    }
    all
}

/// Makes the addresses for pods of CNI plugins. Returns the task that goes on with it if the kernel refuses.
pub(super) fn make(cx: &Context) -> Option<Task<()>> {
    let network = &cx.config.network;
    if network.mode == NetworkMode::Builtin {
        return None;
    }
    let error = dns_link::ensure_api(&network.bridge).err()?;
    log::error!("no local API for pods of CNI plugins: {error}; tried again until it is there");
    let bridge = network.bridge.clone();
    Some(cx.tasks.spawn(async move { make_later(&bridge, pause_after).await }))
}

/// Tries again until the addresses are there. `pause`: by the number of failures before.
async fn make_later(bridge: &str, pause: fn(u32) -> Duration) {
    let mut failures = 0_u32;
    loop {
        Timer::after(pause(failures)).await;
        match dns_link::ensure_api(bridge) {
            Ok(_) => return log::info!("pods of CNI plugins have an address for the local API"),
            Err(error) => log::debug!("no local API for pods of CNI plugins: {error}"),
        }
        failures = failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::sched::{CloneFlags, unshare};

    use super::*;

    #[test]
    fn refused_address_is_made_later() {
        if !nix::unistd::Uid::effective().is_root() {
            return;
        }
        let ip = |words: &[&str]| assert!(Command::new("ip").args(words).status().unwrap().success(), "{words:?}");
        // A thread of its own, whose namespace ends with it.
        let work = move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            ip(&["link", "add", "dns-late", "type", "veth", "peer", "name", "other"]);
            assert!(dns_link::ensure_api("late").is_err(), "a link of another kind has the name");
            let frees = async {
                Timer::after(Duration::from_millis(50)).await;
                ip(&["link", "delete", "dns-late"]);
            };
            let makes = make_later("late", |_| Duration::from_millis(10));
            smol::block_on(smol::future::zip(makes, frees));
            for address in dns_link::api_addresses().into_iter().filter(IpAddr::is_ipv4) {
                assert!(std::net::TcpListener::bind((address, 0)).is_ok(), "{address}");
            }
        };
        std::thread::spawn(work).join().unwrap();
    }
}
