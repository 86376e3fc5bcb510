//! Listings of firewalls in use.

use super::*;

fn found(family: &str, table: &str, listed: &str) -> Vec<(Hook, String)> {
    blocking(family, table, listed, "b0").into_iter().map(|one| (one.hook, one.remedy("b0"))).collect()
}

#[test]
fn tables_are_found_by_the_hooks_of_their_chains() {
    let listed = "table ip filter {\n\tchain FORWARD {\n\t\ttype filter hook forward priority filter; policy drop;\n\t}\n}\n\
        table ip6 filter {\n\tchain INPUT {\n\t\ttype filter hook input priority filter; policy accept;\n\t}\n}\n\
        table inet nat {\n\tchain x {\n\t\ttype nat hook input priority 0; policy accept;\n\t}\n\tchain y {\n\t}\n}\n\
        table ip services-b0 {\n\tchain filter-forward {\n\t\ttype filter hook forward priority filter; policy accept;\n\t}\n}\n\
        table bridge br {\n\tchain f {\n\t\ttype filter hook forward priority filter; policy drop;\n\t}\n}\n";
    let names = |v4, v6| tables(listed, "b0", v4, v6).into_iter().map(|(family, _)| family).collect::<Vec<_>>();
    assert_eq!((names(true, true), names(true, false)), (vec!["ip".to_owned(), "ip6".into()], vec!["ip".to_owned()]));
}

#[test]
fn a_policy_of_drop_blocks_until_a_rule_names_the_bridge() {
    let debian = "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy drop;\n\
        \t\tct state established,related accept\n\t\tiifname \"lo\" accept\n\t}\n\
        \tchain forward {\n\t\ttype filter hook forward priority filter; policy drop;\n\t\tjump more\n\t}\n\
        \tchain more {\n\t\tiifname \"b01\" accept\n\t}\n\
        \tchain output {\n\t\ttype filter hook output priority filter; policy accept;\n\t}\n}\n";
    let [(Hook::Forward, forward), (Hook::Input, input)] = &found("inet", "filter", debian)[..] else {
        panic!("both hooks")
    };
    assert!(forward.contains("nft insert rule inet filter forward iifname b0 accept"), "{forward}");
    assert!(input.contains("input iifname b0 meta l4proto { tcp, udp } th dport 53 accept"), "{input}");
    let passed = debian.replace("\"b01\" accept", "\"b0\" counter packets 0 bytes 0 accept comment \"x\"");
    assert_eq!(found("inet", "filter", &passed).len(), 1, "by a chain that it leads to");
    let named = debian.replace("\"b01\" accept", "\"b01\" accept comment \"not \\\"b0\\\"\"");
    assert_eq!(found("inet", "filter", &named).len(), 2, "a comment lets nobody through");
    for others in
        ["iifname != \"b0\" oifname != \"b0\" accept", "iifname != { \"b0\", \"b01\" } accept", "iif != \"b0\" jump x"]
    {
        let others = debian.replace("iifname \"b01\" accept", others);
        assert_eq!(found("inet", "filter", &others).len(), 2, "it is about all others: {others}");
    }
    let one_side = debian.replace("iifname \"b01\" accept", "iifname \"b0\" oifname != \"b0\" accept");
    assert_eq!(found("inet", "filter", &one_side).len(), 1);
    let names = debian.replace("iifname \"lo\" accept\n", "udp dport { 22, 53 } accept\n");
    assert_eq!(found("inet", "filter", &names).len(), 1, "names are answered for everybody");
    assert!(found("inet", "filter", &debian.replace("policy drop", "policy accept")).is_empty());
}

#[test]
fn final_reject_rule_counts_as_a_policy() {
    let firewalld = "table inet firewalld {\n\tchain filter_FORWARD {\n\
        \t\ttype filter hook forward priority filter + 10; policy accept;\n\t\tct state { established, related } accept\n\
        \t\tjump filter_FORWARD_ZONES\n\t\treject with icmpx admin-prohibited\n\t}\n\tchain filter_FORWARD_ZONES {\n\
        \t\tiifname \"eth0\" goto filter_FWD_public\n\t}\n}\n";
    let told = found("inet", "firewalld", firewalld);
    assert!(told[0].1.contains("--zone=trusted --add-interface=b0"), "{told:?}");
    assert!(found("inet", "firewalld", &firewalld.replace("eth0", "b0")).is_empty());
    assert!(found("inet", "firewalld", &firewalld.replace("reject with", "ip daddr 192.0.2.1 reject with")).is_empty());
    let ufw = "table ip filter {\n\tchain INPUT {\n\t\ttype filter hook input priority filter; policy accept;\n\
        \t\tcounter packets 0 bytes 0 jump ufw-user-input\n\t\tcounter packets 12 bytes 800 drop\n\t}\n\
        \tchain ufw-user-input {\n\t}\n}\n";
    assert_eq!(found("ip", "filter", ufw)[0].1, "ufw allow in on b0");
}
