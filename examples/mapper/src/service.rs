//! The mapper's end of DMI: DeviceMapperService at a unix socket. Calls go to the owner of the devices, as [`Call`]s.
//! Decides nothing.

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream;
use sampan_dmi::{
    CreateDeviceModelRequest, CreateDeviceModelResponse, Device, DeviceModel, Empty, GetDeviceRequest,
    GetDeviceResponse, Message, RegisterDeviceRequest, RegisterDeviceResponse, RemoveDeviceModelRequest,
    RemoveDeviceRequest, UpdateDeviceModelRequest, UpdateDeviceRequest, mapper,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, Sleep, sleep};
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::plan::Id;

/// The node has one connection, or two for a moment. Other clients in the folder are untrusted.
const CONNECTIONS: usize = 16;
const CALLS_OF_A_CONNECTION: u32 = 8;
/// A device has less.
const LONGEST: usize = 1 << 20;
/// A caller that is silent is asked whether it is there,
const ASKED: Duration = Duration::from_secs(20);
/// Timeout of a silent connection: also before its HTTP/2 preface.
const SILENT: Duration = Duration::from_secs(50);

/// A request of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// RegisterDevice and UpdateDevice: this is the device.
    Device(Device),
    RemoveDevice(Id),
    /// CreateDeviceModel and UpdateDeviceModel.
    Model(DeviceModel),
    RemoveModel(Id),
    Get(Id),
}

/// A call to answer: with the device, if it was requested.
#[derive(Debug)]
pub struct Call {
    pub ask: Ask,
    pub reply: oneshot::Sender<Result<Option<Device>, Status>>,
}

/// Listens at this path, and replaces the socket of an earlier process.
///
/// # Errors
/// The socket cannot be had; names it.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(named(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(named)?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o660)).map_err(named)?;
    Ok(listener)
}

/// Serves forever.
///
/// # Errors
/// Never caused by a caller.
pub async fn serve(listener: UnixListener, calls: mpsc::Sender<Call>) -> Result<(), tonic::transport::Error> {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let incoming = stream::unfold((listener, places), async |(listener, places)| {
        // Never closed.
        let place = Arc::clone(&places).acquire_owned().await.ok()?;
        let accepted = loop {
            match listener.accept().await {
                Ok((stream, _)) => break Connection::new(stream, place),
                // Too many files are open, or the like.
                Err(error) => {
                    log::warn!("nobody can call for a moment: {error}");
                    sleep(Duration::from_secs(1)).await;
                }
            }
        };
        Some((Ok::<_, io::Error>(accepted), (listener, places)))
    });
    Server::builder()
        .max_concurrent_streams(CALLS_OF_A_CONNECTION)
        .http2_keepalive_interval(Some(ASKED))
        .http2_keepalive_timeout(Some(ASKED))
        .serve_with_incoming(Service { calls }, incoming)
        .await
}

struct Connection {
    stream: UnixStream,
    /// When it has been silent for too long.
    end: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    fn new(stream: UnixStream, place: OwnedSemaphorePermit) -> Self {
        Self { stream, end: Box::pin(sleep(SILENT)), _place: place }
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(context, into) {
            Poll::Ready(read) => {
                self.end.as_mut().reset(Instant::now() + SILENT);
                Poll::Ready(read)
            }
            Poll::Pending => self.end.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into())),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

#[derive(Clone)]
struct Service {
    calls: mpsc::Sender<Call>,
}

impl tower::Service<http::Request<Body>> for Service {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let calls = self.calls.clone();
        Box::pin(async move { Ok(answer(calls, request).await) })
    }
}

fn id(namespace: String, name: String) -> Id {
    Id { namespace, name }
}

async fn answer(calls: mpsc::Sender<Call>, request: http::Request<Body>) -> http::Response<Body> {
    let no_device = || Status::invalid_argument("the request has no device");
    let no_model = || Status::invalid_argument("the request has no model");
    let empty = |_| Empty {};
    match request.uri().path() {
        mapper::REGISTER_DEVICE => {
            let ask = move |asked: RegisterDeviceRequest| {
                let device = asked.device.ok_or_else(no_device)?;
                let (device_name, device_namespace) = (device.name.clone(), device.namespace.clone());
                Ok((Ask::Device(device), RegisterDeviceResponse { device_name, device_namespace }))
            };
            unary(calls, request, ask, |_, answer| answer).await
        }
        mapper::UPDATE_DEVICE => {
            let ask = move |asked: UpdateDeviceRequest| Ok((Ask::Device(asked.device.ok_or_else(no_device)?), ()));
            unary(calls, request, ask, move |device, ()| empty(device)).await
        }
        mapper::REMOVE_DEVICE => {
            let ask = |RemoveDeviceRequest { device_name, device_namespace }: RemoveDeviceRequest| {
                Ok((Ask::RemoveDevice(id(device_namespace, device_name)), ()))
            };
            unary(calls, request, ask, move |device, ()| empty(device)).await
        }
        mapper::CREATE_DEVICE_MODEL => {
            let ask = move |asked: CreateDeviceModelRequest| {
                let model = asked.model.ok_or_else(no_model)?;
                let (device_model_name, device_model_namespace) = (model.name.clone(), model.namespace.clone());
                Ok((Ask::Model(model), CreateDeviceModelResponse { device_model_name, device_model_namespace }))
            };
            unary(calls, request, ask, |_, answer| answer).await
        }
        mapper::UPDATE_DEVICE_MODEL => {
            let ask = move |asked: UpdateDeviceModelRequest| Ok((Ask::Model(asked.model.ok_or_else(no_model)?), ()));
            unary(calls, request, ask, move |device, ()| empty(device)).await
        }
        mapper::REMOVE_DEVICE_MODEL => {
            let ask = |RemoveDeviceModelRequest { model_name, model_namespace }: RemoveDeviceModelRequest| {
                Ok((Ask::RemoveModel(id(model_namespace, model_name)), ()))
            };
            unary(calls, request, ask, move |device, ()| empty(device)).await
        }
        mapper::GET_DEVICE => {
            let ask = |GetDeviceRequest { device_name, device_namespace }: GetDeviceRequest| {
                Ok((Ask::Get(id(device_namespace, device_name)), ()))
            };
            unary(calls, request, ask, |device, ()| GetDeviceResponse { device }).await
        }
        _ => Status::unimplemented(format!("no method of {}", mapper::SERVICE)).into_http(),
    }
}

/// `ask` parses a request and builds its answer.
async fn unary<Q, R, K>(
    calls: mpsc::Sender<Call>,
    request: http::Request<Body>,
    ask: impl Fn(Q) -> Result<(Ask, K), Status> + Clone + Send + 'static,
    made: impl Fn(Option<Device>, K) -> R + Clone + Send + 'static,
) -> http::Response<Body>
where
    Q: Message + Default + Send + 'static,
    R: Message + Send + Sync + 'static,
    K: Send + 'static,
{
    let service = tower::service_fn(move |request: Request<Q>| {
        let (calls, made, asked) = (calls.clone(), made.clone(), ask(request.into_inner()));
        async move {
            let (ask, kept) = asked?;
            let (reply, answer) = oneshot::channel();
            let ending = |_| Status::unavailable("the mapper ends");
            calls.send(Call { ask, reply }).await.map_err(|_| Status::unavailable("the mapper ends"))?;
            answer.await.map_err(ending)?.map(|device| Response::new(made(device, kept)))
        }
    });
    Grpc::new(ProstCodec::<R, Q>::default()).max_decoding_message_size(LONGEST).unary(service, request).await
}
