//! Registration of a mapper: whether it is permitted, which mapper it replaces, and which devices it gets at once.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use sampan_devices_control::Named;
use sampan_dmi::{MapperInfo, MapperRegisterRequest, append, appended};
use sampan_grpc::{Code, Status};
use sampan_sys::gather::Gather;

use super::super::now::{MINUTE, Now};
use super::super::{Output, Twins};
use super::given::{Source, Wanted};
use super::mapper::{Info, MOST, Mapper};
use super::request::not_ready;
use super::rows;
use super::state::{Event, Registration};

/// Most of one pod: it cannot take the places of all.
const OF_POD: usize = 8;
/// Longest name, version and protocol, in bytes.
const LONGEST: usize = 253;
/// Maximum length of an answer in bytes: gRPC limits messages to 4 MiB by default. Further devices follow one by one.
const ANSWER: usize = 7 << 19;
/// Maximum number of devices in an answer, for which a mapper waits at most a second: a small board prepares this
/// number in half of it.
const AT_ONCE: usize = 1_000;
/// Maximum number of events that name the new mapper of a device.
const EVENTS: usize = 25;
/// Registrations that wait for the daemon.
const WAITING: usize = 16;

fn invalid(why: impl Into<String>) -> Status {
    Status::new(Code::InvalidArgument, why)
}

/// The name of the mapper's socket, which must be directly in this folder.
fn socket(folder: &Path, address: &[u8]) -> Result<String, Status> {
    let wrong = || {
        let shown = String::from_utf8_lossy(address);
        let shown: String = shown.chars().take(108).collect();
        invalid(format!("address {shown:?} is no socket in {}", folder.display()))
    };
    let path = Path::new(std::str::from_utf8(address).map_err(|_| wrong())?);
    let name = match path.components().next_back() {
        Some(Component::Normal(name)) => name.to_str(),
        _ => None,
    };
    let name = name.filter(|name| name.len() < LONGEST && !name.contains(['\0', '/']) && *name != super::SOCKET);
    match name {
        Some(name) if path.parent() == Some(folder) && path.is_absolute() => Ok(name.to_owned()),
        _ => Err(wrong()),
    }
}

fn info(folder: &Path, mapper: MapperInfo, pod: String) -> Result<Info, Status> {
    let MapperInfo { name, version, protocol, address, .. } = mapper;
    if protocol.is_empty() {
        return Err(invalid("the mapper names no protocol"));
    }
    if [&name, &version, &protocol].iter().any(|text| text.len() > LONGEST || text.contains(char::is_control)) {
        return Err(invalid(format!("name, version and protocol have {LONGEST} bytes at most that can be printed")));
    }
    Ok(Info { name, version, protocol, socket: socket(folder, &address)?, pod, replaced: false })
}

impl Twins {
    /// `pod`: uid of the caller's.
    pub(super) fn register(&mut self, now: Now, call: u64, request: MapperRegisterRequest, pod: String) {
        let registration = Registration { call, with_data: request.with_data };
        let info = match (&self.mappers.folder, request.mapper) {
            (None, _) => Err(Status::new(Code::Unimplemented, "DMI is off")),
            (_, None) => Err(invalid("the request has no mapper")),
            (Some(folder), Some(mapper)) => info(folder, mapper, pod),
        };
        let answer = match info {
            Err(status) => Err(status),
            // Its devices are unknown before the daemon has sent all objects.
            Ok(info) if !self.ready && self.mappers.unanswered.len() < WAITING => {
                self.mappers.unanswered.push((registration, info));
                return;
            }
            Ok(_) if !self.ready => Err(not_ready()),
            Ok(info) if !self.mappers.rate.may_register(now.mono, &info.pod) => {
                Err(Status::new(Code::ResourceExhausted, "mappers register too often"))
            }
            Ok(info) => self.registered(now, &registration, info),
        };
        self.counters.refused += u64::from(answer.is_err());
        self.outputs.push(Output::Answer { call, answer });
    }

    pub(super) fn registered(&mut self, now: Now, registration: &Registration, info: Info) -> Result<Vec<u8>, Status> {
        let same = |mapper: &Mapper| mapper.info.socket == info.socket;
        let others = self.mappers.all.iter().filter(|mapper| !same(mapper)).count();
        if others >= MOST && !self.make_room(&info.pod) {
            return Err(Status::new(Code::ResourceExhausted, format!("{MOST} mappers are registered")));
        }
        let of_pod = |mapper: &&Mapper| !same(mapper) && mapper.info.pod == info.pod;
        if !info.pod.is_empty() && self.mappers.all.iter().filter(of_pod).count() >= OF_POD {
            return Err(Status::new(Code::ResourceExhausted, format!("{OF_POD} mappers of this pod are registered")));
        }
        log::info!("mapper {} of protocol {} is registered at {}", info.name, info.protocol, info.socket);
        self.replace(now, &info);
        let (number, mut before) = self.make_way(&info);
        let mut mapper = Mapper::new(number, info, now.mono);
        let answer = self.give_all(&mut mapper, registration.with_data);
        // A mapper that restarts repeatedly causes writes only for changes.
        for (uid, record) in mapper.rows() {
            if before.remove(&uid).as_ref() != Some(&record) {
                self.mappers.rows.put(uid, record);
            }
        }
        before.into_keys().for_each(|uid| self.mappers.rows.forget(uid));
        self.mappers.rows.at_once();
        if self.mappers.ask_at <= now.mono {
            self.mappers.ask_at = now.mono + MINUTE;
        }
        self.mappers.all.push(mapper);
        self.mappers.all.sort_unstable_by_key(|mapper| mapper.number);
        Ok(answer)
    }

    /// Removes the former owner of the mapper's socket. Returns its number, which the new one takes over if it has the
    /// same protocol, and its stored rows.
    fn make_way(&mut self, info: &Info) -> (u64, BTreeMap<String, String>) {
        let all = &mut self.mappers.all;
        let next = all.iter().map(|mapper| mapper.number + 1).max().unwrap_or(1);
        let Some(at) = all.iter().position(|mapper| mapper.info.socket == info.socket) else {
            return (next, BTreeMap::new());
        };
        let old = all.remove(at);
        self.outputs.push(Output::Hangup { mapper: old.number });
        let number = if old.info.protocol == info.protocol { old.number } else { next };
        (number, old.rows().into_map())
    }

    /// Another one of the protocol is to leave its devices to this one.
    fn replace(&mut self, now: Now, info: &Info) {
        let mut moved = Vec::new();
        let others = self.mappers.all.iter_mut().filter(|mapper| {
            mapper.info.protocol == info.protocol && mapper.info.socket != info.socket && !mapper.info.replaced
        });
        for other in others {
            log::warn!("mapper {} of protocol {} is replaced by {}", other.info.name, info.protocol, info.name);
            other.info.replaced = true;
            other.known = now.mono;
            self.mappers.rows.put(rows::of_mapper(other.number), other.record());
            let devices: Vec<Named> = other.held.keys().cloned().collect();
            let message = format!(
                "mapper {:?} at {} drives it now, and {:?} at {} no more: both are of protocol {:?}",
                info.name, info.socket, other.info.name, other.info.socket, info.protocol
            );
            moved.extend(devices.iter().take(EVENTS).map(|id| (id.clone(), message.clone())));
            devices.into_iter().for_each(|id| other.enqueue(id));
        }
        if moved.is_empty() || !self.mappers.may_tell_replaced(now) {
            return;
        }
        for (id, message) in moved.into_iter().take(EVENTS) {
            self.mapper_event(&id, Event { warning: true, reason: "MapperReplaced", message });
        }
    }

    /// Everything of its protocol that fits, as it is then held; the rest waits.
    fn give_all(&mut self, mapper: &mut Mapper, with_data: bool) -> Vec<u8> {
        let (mut answer, mut odd) = (Vec::new(), Vec::new());
        let mut source = Source::new(&self.devices, &self.models);
        for id in self.devices.keys() {
            // At its turn the device may turn out to belong to another mapper.
            if mapper.held.len() == AT_ONCE {
                mapper.enqueue(id.clone());
                continue;
            }
            let Wanted::Is(given) = source.wanted(id) else { continue };
            if given.protocol != mapper.info.protocol {
                continue;
            }
            odd.push((id.clone(), given.notes.text()));
            let model = &given.model;
            let with_model = !mapper.models.contains_key(&model.id);
            let size = appended(given.device.len()) + if with_model { appended(model.message.len()) } else { 0 };
            if !with_data || answer.len() + size > ANSWER {
                mapper.enqueue(id.clone());
                continue;
            }
            if with_model {
                append(&mut answer, 1, &model.message);
                mapper.models.insert(model.id.clone(), model.hash);
            }
            append(&mut answer, 2, &given.device);
            mapper.held.insert(id.clone(), Some(given.hash));
        }
        for (id, note) in odd {
            self.warn_of(&id, note);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapper_s_socket_is_in_the_folder() {
        let folder = Path::new("/etc/kubeedge");
        let name = |address: &str| socket(folder, address.as_bytes()).map_err(|status| status.code);
        assert_eq!(name("/etc/kubeedge/modbus.sock"), Ok("modbus.sock".into()));
        assert_eq!(name("/etc/kubeedge//modbus.sock"), Ok("modbus.sock".into()));
        let long = format!("/etc/kubeedge/{}", "x".repeat(300));
        for strange in [
            "",
            "/",
            "modbus.sock",
            "/etc/kubeedge",
            "/etc/kubeedge/",
            "/etc/kubeedge/..",
            "/etc/kubeedge/a/b.sock",
            "/etc/kubeedge/../kubeedge/b.sock",
            "/etc/kubeedge/../../run/edge-runtime/devices.sock",
            "/run/edge-runtime/devices.sock",
            "/etc/kubeedge/dmi.sock",
            "/etc/kubeedge/a\0b",
            &long,
        ] {
            assert_eq!(name(strange), Err(Code::InvalidArgument), "{strange:?}");
        }
        assert!(socket(folder, b"/etc/kubeedge/\xff.sock").is_err());
    }
}
