//! A mapper of one protocol: registers with the node, holds the node's devices, and has a task drive each. A repeated
//! message of the node changes nothing.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use sampan_dmi::{Device, DeviceModel, MapperInfo, MapperRegisterRequest, MapperRegisterResponse, Message, manager};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, sleep_until};
use tonic::Status;

use crate::device::{Shared, drive};
use crate::drivers::Driver;
use crate::edge::{Edge, Identity, why};
use crate::once::Once;
use crate::plan::{Id, Plan, plan};
use crate::service::{self, Ask, Call};
use crate::written::Written;

/// Calls of the node that wait.
const CALLS: usize = 8;
/// Most devices and most models.
const MOST: usize = 4_096;
/// An answer above this may have left out devices, which follow one by one.
const WHOLE: usize = 3 << 20;
/// Between two looks at whether the node's helper was started again.
const LOOK: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_AT_MOST: Duration = Duration::from_secs(10);

/// Identity and places of this mapper.
#[derive(Clone, Debug)]
pub struct Options {
    pub name: String,
    /// Folder with the node's `dmi.sock`, this mapper's socket, and its stored state.
    pub folder: PathBuf,
}

struct Running<D: Driver> {
    device: Device,
    plan: watch::Sender<Plan<D::Point>>,
    task: AbortHandle,
}

impl<D: Driver> Drop for Running<D> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Mapper<D: Driver> {
    options: Options,
    shared: Rc<Shared<D>>,
    models: BTreeMap<Id, DeviceModel>,
    devices: BTreeMap<Id, Running<D>>,
    once: Once,
    /// The node's socket where this mapper is registered.
    registered: Option<Identity>,
    look_at: Instant,
    pause: Duration,
}

/// Works until the process ends, in tasks of the current `LocalSet`.
///
/// # Errors
/// Its socket cannot be had.
pub async fn run<D: Driver>(options: Options, driver: D) -> io::Result<()> {
    let file = |ending: &str| options.folder.join(format!("{}.{ending}", options.name));
    // Listens before it registers: the node may call the announced socket at once.
    let listener = service::listen(&file("sock"))?;
    let (sender, mut calls) = mpsc::channel(CALLS);
    spawn_local(async move {
        if let Err(error) = service::serve(listener, sender).await {
            log::error!("nobody can call any more: {error}");
        }
    });
    let edge = Edge::new(options.folder.join("dmi.sock"));
    let written = Written::load(file("written"), D::KEEPS);
    let mut mapper = Mapper {
        options,
        shared: Rc::new(Shared { driver, edge, written, registered: watch::Sender::new(0) }),
        models: BTreeMap::new(),
        devices: BTreeMap::new(),
        once: Once::default(),
        registered: None,
        look_at: Instant::now(),
        pause: PAUSE,
    };
    loop {
        tokio::select! {
            call = calls.recv() => match call {
                Some(Call { ask, reply }) => {
                    // Ignores a call whose client has given up: it may have sent a newer one since.
                    if !reply.is_closed() {
                        let _ = reply.send(mapper.asked(ask).await);
                    }
                }
                None => return Err(io::Error::other("the mapper's socket is gone")),
            },
            () = sleep_until(mapper.look_at) => mapper.look(&mut calls).await,
        }
    }
}

impl<D: Driver> Mapper<D> {
    /// Registers, if this mapper is not registered where the node is now.
    async fn look(&mut self, calls: &mut mpsc::Receiver<Call>) {
        let here = self.shared.edge.identity();
        if let Ok(identity) = here
            && self.registered == Some(identity)
        {
            self.look_at = Instant::now() + LOOK;
            return;
        }
        let answer = match here {
            Ok(_) => self.register(calls).await.map_err(|status| why(&status)),
            Err(ref error) => Err(format!("{}: {error}", self.shared.edge.socket().display())),
        };
        match answer {
            Ok(given) => {
                self.once.over(&self.options.name, "registration");
                (self.registered, self.pause) = (here.ok(), PAUSE);
                self.given(given).await;
                self.look_at = Instant::now() + LOOK;
            }
            Err(why) => {
                self.once.warn(&self.options.name, "registration", &why);
                self.look_at = Instant::now() + self.pause;
                self.pause = (self.pause * 2).min(PAUSE_AT_MOST);
            }
        }
    }

    async fn register(&self, calls: &mut mpsc::Receiver<Call>) -> Result<MapperRegisterResponse, Status> {
        let socket = self.options.folder.join(format!("{}.sock", self.options.name));
        let info = MapperInfo {
            name: self.options.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api_version: "v1beta1".to_owned(),
            protocol: D::PROTOCOL.to_owned(),
            address: socket.as_os_str().as_bytes().to_vec(),
            state: "ok".to_owned(),
        };
        let request = MapperRegisterRequest { with_data: true, mapper: Some(info) };
        let mut answer = pin!(self.shared.edge.call(manager::MAPPER_REGISTER, request));
        loop {
            tokio::select! {
                answer = &mut answer => return answer,
                // Older or newer than the answer: the caller retries.
                Some(call) = calls.recv() => {
                    let _ = call.reply.send(Err(Status::unavailable("the mapper is registering")));
                }
            }
        }
    }

    /// All that there is, as the node has answered.
    async fn given(&mut self, given: MapperRegisterResponse) {
        let is_whole = given.encoded_len() < WHOLE;
        log::info!("{} is registered, with {} devices", self.options.name, given.device_list.len());
        let ids: Vec<Id> = given.device_list.iter().map(id_of).collect();
        for model in given.model_list {
            if let Err(status) = self.model(model) {
                log::warn!("{}: {}", self.options.name, status.message());
            }
        }
        for device in given.device_list {
            let id = id_of(&device);
            match self.device(device) {
                Ok(()) => self.once.over(&self.options.name, &id.to_string()),
                Err(status) => self.once.warn(&self.options.name, &id.to_string(), status.message()),
            }
        }
        if is_whole {
            self.devices.retain(|id, _| ids.contains(id));
            let devices = &self.devices;
            self.shared.written.retain(|id| devices.contains_key(id) || ids.contains(id)).await;
        }
        self.retain();
        self.shared.registered.send_modify(|times| *times += 1);
    }

    async fn asked(&mut self, ask: Ask) -> Result<Option<Device>, Status> {
        match ask {
            Ask::Device(device) => {
                let id = id_of(&device);
                self.device(device)?;
                self.once.over(&self.options.name, &id.to_string());
                self.retain();
            }
            Ask::RemoveDevice(id) => {
                if self.devices.remove(&id).is_some() {
                    log::info!("{id} is left alone");
                }
                self.shared.written.retain(|held| *held != id).await;
                self.retain();
            }
            Ask::Model(model) => {
                let id = Id { namespace: model.namespace.clone(), name: model.name.clone() };
                self.model(model)?;
                self.plan_again(&id);
            }
            Ask::RemoveModel(id) => drop(self.models.remove(&id)),
            Ask::Get(id) => {
                let running = self.devices.get(&id).ok_or_else(|| Status::not_found(format!("no device {id}")))?;
                return Ok(Some(running.device.clone()));
            }
        }
        Ok(None)
    }

    fn model(&mut self, model: DeviceModel) -> Result<(), Status> {
        let id = Id { namespace: model.namespace.clone(), name: model.name.clone() };
        if self.models.len() >= MOST && !self.models.contains_key(&id) {
            return Err(Status::resource_exhausted(format!("{MOST} models are here")));
        }
        self.models.insert(id, model);
        Ok(())
    }

    /// Plans the devices of this model again. A device that can no longer be driven continues as before, until the node
    /// sends more.
    fn plan_again(&mut self, model: &Id) {
        let Some(model) = self.models.get(model) else { return };
        for running in self.devices.values() {
            if model_of(&running.device) != (Id { namespace: model.namespace.clone(), name: model.name.clone() }) {
                continue;
            }
            if let Ok(plan) = plan::<D>(&running.device, model) {
                running.plan.send_if_modified(|held| {
                    if *held == plan {
                        false
                    } else {
                        *held = plan;
                        true
                    }
                });
            }
        }
    }

    fn device(&mut self, device: Device) -> Result<(), Status> {
        let id = id_of(&device);
        if id.name.is_empty() || id.to_string().split('/').count() != 2 {
            return Err(Status::invalid_argument("the device has no name"));
        }
        let model = model_of(&device);
        let model =
            self.models.get(&model).ok_or_else(|| Status::failed_precondition(format!("model {model} is not here")))?;
        let protocol = device.spec.as_ref().and_then(|spec| spec.protocol.as_ref());
        let protocol = protocol.map_or("", |protocol| &protocol.protocol_name);
        if protocol != D::PROTOCOL {
            return Err(Status::invalid_argument(format!("protocol {protocol:?} is not {:?}", D::PROTOCOL)));
        }
        let plan = plan::<D>(&device, model).map_err(Status::invalid_argument)?;
        if let Some(running) = self.devices.get_mut(&id) {
            running.device = device;
            running.plan.send_if_modified(|held| {
                if *held == plan {
                    false
                } else {
                    *held = plan;
                    true
                }
            });
            return Ok(());
        }
        if self.devices.len() >= MOST {
            return Err(Status::resource_exhausted(format!("{MOST} devices are here")));
        }
        log::info!("{id} is driven: properties: {}", plan.properties.len());
        let (plan, plans) = watch::channel(plan);
        let task = spawn_local(drive(Rc::clone(&self.shared), plans)).abort_handle();
        self.devices.insert(id, Running { device, plan, task });
        Ok(())
    }

    fn retain(&self) {
        let plans: Vec<Plan<D::Point>> = self.devices.values().map(|running| running.plan.borrow().clone()).collect();
        let points: Vec<&D::Point> =
            plans.iter().flat_map(|plan| &plan.properties).map(|property| &property.point).collect();
        self.shared.driver.retain(&points);
    }
}

fn id_of(device: &Device) -> Id {
    Id { namespace: device.namespace.clone(), name: device.name.clone() }
}

fn model_of(device: &Device) -> Id {
    let name = device.spec.as_ref().map(|spec| spec.device_model_reference.clone()).unwrap_or_default();
    Id { namespace: device.namespace.clone(), name }
}
