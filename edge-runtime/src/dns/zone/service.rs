//! Answers about one Service: addresses, ports and aliases. Pure.

use std::collections::BTreeSet;

use super::{Answer, Endpoint, Port, Service, Zone, absent, found, nothing};
use crate::dns::wire::{A, AAAA, CNAME, Code, Data, Record, SHORTEST, SRV};

impl Zone {
    pub(super) fn service(&self, name: &str, (kind, room): (u16, usize), service: &Service, before: &[&str]) -> Answer {
        if let Some(target) = &service.external_name {
            if !before.is_empty() {
                return absent();
            }
            let target = target.trim_end_matches('.').to_ascii_lowercase();
            return self.alias(Record { name: name.into(), data: Data::Name(target.clone()) }, (kind, room), target);
        }
        let headless = service.ips.is_empty();
        match before {
            [] if kind == SRV => self.all_ports(name, room, service),
            [] if headless && service.endpoints.is_empty() => absent(),
            [] if headless => {
                let of_kind =
                    service.endpoints.iter().map(|to| Data::Address(to.ip)).filter(|data| data.kind() == kind);
                found(name, kind, of_kind.take(room / SHORTEST + 1).collect())
            }
            [] => found(name, kind, service.ips.iter().map(|ip| Data::Address(*ip)).collect()),
            [endpoint] => {
                let same = service.endpoints.iter().filter(|other| other.label() == *endpoint);
                let same: Vec<Data> = same.map(|to| Data::Address(to.ip)).collect();
                if same.is_empty() { absent() } else { found(name, kind, same) }
            }
            [port, protocol] => match (port.strip_prefix('_'), protocol.strip_prefix('_')) {
                // A port without a name does not have an SRV record.
                (Some(port), Some(protocol)) if !port.is_empty() => {
                    let wanted = |other: &Port| other.name == port && other.protocol == protocol;
                    self.ports(name, (kind, room), service, &wanted)
                }
                _ => absent(),
            },
            _ => absent(),
        }
    }

    /// Answers an SRV query for the Service itself with all its ports, as CoreDNS does.
    fn all_ports(&self, name: &str, room: usize, service: &Service) -> Answer {
        match self.ports(name, (SRV, room), service, &|_| true) {
            Answer::Known(Code::NoSuchName, ..) if !service.ips.is_empty() || !service.endpoints.is_empty() => {
                nothing()
            }
            answer => answer,
        }
    }

    fn ports(
        &self,
        name: &str,
        (kind, room): (u16, usize),
        service: &Service,
        wanted: &dyn Fn(&Port) -> bool,
    ) -> Answer {
        let host = format!("{}.{}.svc.{}", service.name, service.namespace, self.domain);
        let targets: Vec<(u16, Option<&Endpoint>)> = if service.ips.is_empty() {
            let all = service.endpoints.iter().flat_map(|to| to.ports.iter().map(move |port| (port, to)));
            all.filter(|(port, _)| wanted(port)).map(|(port, to)| (port.port, Some(to))).collect()
        } else {
            service.ports.iter().filter(|port| wanted(port)).map(|port| (port.port, None)).collect()
        };
        if targets.is_empty() {
            return absent();
        }
        if kind != SRV {
            return nothing();
        }
        let weight = u16::try_from((100 / targets.len()).max(1)).unwrap_or(1);
        let (mut more, mut records, mut size) = (BTreeSet::new(), Vec::new(), 0);
        for (port, endpoint) in targets {
            if size > room {
                break;
            }
            let (target, ips) = match endpoint {
                Some(endpoint) => (format!("{}.{host}", endpoint.label()), std::slice::from_ref(&endpoint.ip)),
                None => (host.clone(), &*service.ips),
            };
            size += SHORTEST + target.len();
            more.extend(ips.iter().map(|ip| Record { name: target.clone(), data: Data::Address(*ip) }));
            records.push(Record { name: name.to_owned(), data: Data::Service { weight, port, target } });
        }
        Answer::Known(Code::NoError, records, more.into_iter().collect())
    }

    /// Resolves an alias. One of another name of the cluster includes its addresses; one of another alias does not.
    fn alias(&self, record: Record, (kind, room): (u16, usize), target: String) -> Answer {
        if kind == CNAME {
            return Answer::Known(Code::NoError, vec![record], Vec::new());
        }
        if ![A, AAAA].contains(&kind) {
            return nothing();
        }
        let inside = target.strip_suffix(&self.domain).is_some_and(|rest| rest.ends_with('.'));
        if !inside {
            return Answer::Alias(record, target);
        }
        let external = |service: &Service| service.external_name.is_some();
        let labels: Vec<&str> = target.split('.').collect();
        let again = self.services.get(labels.get(1).copied().unwrap_or_default());
        if again.and_then(|all| all.get(labels[0])).is_some_and(external) {
            return Answer::Known(Code::NoError, vec![record], Vec::new());
        }
        match self.answer(&target, kind, room) {
            Answer::Known(_, records, more) => Answer::Known(Code::NoError, [vec![record], records].concat(), more),
            Answer::Unknown(namespace) => Answer::Unknown(namespace),
            _ => Answer::Known(Code::NoError, vec![record], Vec::new()),
        }
    }
}
