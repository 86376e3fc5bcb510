//! What to tell users of a chain that blocks pods.

use super::{Blocking, Hook, Kind};

impl Blocking {
    /// Returns the problem as text.
    pub fn what(&self) -> String {
        let Self { family, table, chain, .. } = self;
        match self.hook {
            Hook::Forward => format!("the firewall drops forwarded packets (chain {family} {table} {chain})"),
            Hook::Input => format!("the firewall drops what pods ask the node (chain {family} {table} {chain})"),
        }
    }

    /// What follows from it.
    pub fn why(&self) -> &'static str {
        match self.hook {
            Hook::Forward => "pods reach nothing beyond this node",
            Hook::Input => "pods find no names",
        }
    }

    /// The commands that let the bridge's pods through.
    pub fn remedy(&self, bridge: &str) -> String {
        let Self { family, table, chain, .. } = self;
        let insert =
            |side: &str, rest: &str| format!("nft insert rule {family} {table} {chain} {side} {bridge} {rest}accept");
        match (self.kind, self.hook) {
            (Kind::Ufw, Hook::Forward) => {
                format!("ufw route allow in on {bridge}; ufw route allow out on {bridge}")
            }
            (Kind::Ufw, Hook::Input) => format!("ufw allow in on {bridge}"),
            (Kind::Firewalld, _) => {
                format!("firewall-cmd --permanent --zone=trusted --add-interface={bridge}; firewall-cmd --reload")
            }
            (Kind::Plain, Hook::Forward) => {
                format!(
                    "{}; {} (and in the file from which the firewall reads its rules)",
                    insert("iifname", ""),
                    insert("oifname", "")
                )
            }
            (Kind::Plain, Hook::Input) => {
                let ports = "meta l4proto { tcp, udp } th dport 53 ";
                format!("{} (and in the file from which the firewall reads its rules)", insert("iifname", ports))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedy_is_that_of_the_program() {
        let remedy = |kind, hook| {
            let [family, table, chain] = ["inet", "filter", "FORWARD"].map(str::to_owned);
            Blocking { hook, family, table, chain, kind }.remedy("b0")
        };
        let ufw = remedy(Kind::Ufw, Hook::Forward);
        assert_eq!(ufw, "ufw route allow in on b0; ufw route allow out on b0");
        for hook in [Hook::Forward, Hook::Input] {
            assert!(remedy(Kind::Firewalld, hook).starts_with("firewall-cmd --permanent --zone=trusted"));
            assert!(remedy(Kind::Plain, hook).starts_with("nft insert rule inet filter FORWARD iifname b0 "));
        }
    }
}
