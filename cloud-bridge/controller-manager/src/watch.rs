//! The watch of one kind, for all controllers. Objects are read as JSON and converted to their type afterwards: a watch
//! needs much code for each type, and these are two dozen. Large ones are converted on another thread. Knows no kind.

use std::time::Duration;

use apimachinery::aside::CONTROLLERS;
use apimachinery::pace::{in_slices, is_large};
use apimachinery::slim::{self, Measured};
use apimachinery::typed::{self, Misfit};
use apimachinery::well_known::PAGE;
use futures::stream::{self, BoxStream, Stream, StreamExt as _};
use kube::api::{Api, ApiResource, ObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// After an object of a list that could not be read all is listed again.
const AGAIN: Duration = Duration::from_secs(10);

/// An object as it arrived. Of its metadata the watch needs only the version.
#[derive(Debug, Clone)]
pub(crate) struct Unread {
    metadata: ObjectMeta,
    object: Came,
}

#[derive(Debug, Clone, PartialEq)]
enum Came {
    Parsed(Measured),
    /// A large one.
    Text(String),
}

impl Came {
    fn read(self) -> Measured {
        match self {
            Self::Parsed(read) => read,
            // It was valid JSON when it arrived.
            Self::Text(text) => slim::measured(&text).unwrap_or_default(),
        }
    }
}

impl<'de> Deserialize<'de> for Unread {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        struct Head {
            #[serde(default)]
            metadata: Version,
        }
        #[derive(Default, Deserialize)]
        struct Version {
            #[serde(default, rename = "resourceVersion")]
            version: Option<String>,
        }
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let (resource_version, object) = if is_large(text.get().len()) {
            let head: Head = serde_json::from_str(text.get()).unwrap_or_default();
            (head.metadata.version, Came::Text(Box::<str>::from(text).into()))
        } else {
            let (value, bytes) = slim::measured(text.get()).map_err(D::Error::custom)?;
            let version = value["metadata"]["resourceVersion"].as_str().map(str::to_owned);
            (version, Came::Parsed((value, bytes)))
        };
        Ok(Self { metadata: ObjectMeta { resource_version, ..ObjectMeta::default() }, object })
    }
}

apimachinery::read_as!(Unread);

/// Removes the managers from the object in an answer: they may be many, and no controller reads them.
fn without_managers(mut object: Value) -> Value {
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("managedFields");
    }
    object
}

/// The event with the result of `read` for its object.
///
/// # Errors
/// Those of `read`.
pub(crate) fn map<A, B>(event: Event<A>, read: impl FnOnce(A) -> Result<B, Misfit>) -> Result<Event<B>, Misfit> {
    Ok(match event {
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
        Event::InitApply(object) => Event::InitApply(read(object)?),
        Event::Apply(object) => Event::Apply(read(object)?),
        Event::Delete(object) => Event::Delete(read(object)?),
    })
}

/// An event with its object, without managers, read as the type `T`.
///
/// # Errors
/// The object does not fit the type.
pub(crate) fn typed<T: DeserializeOwned>(event: Event<Value>) -> Result<Event<T>, Misfit> {
    map(event, |object| typed::read(&without_managers(object)))
}

fn has_large(event: &Event<Unread>) -> bool {
    match event {
        Event::Init | Event::InitDone => false,
        Event::InitApply(unread) | Event::Apply(unread) | Event::Delete(unread) => {
            matches!(unread.object, Came::Text(_))
        }
    }
}

/// Follows all objects of a kind as the type `T`, in slices.
pub(crate) fn all<T>(client: &Client) -> impl Stream<Item = Result<Event<T>, String>> + Send + use<T>
where
    T: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
{
    in_slices(watch(Api::all_with(client.clone(), &ApiResource::erase::<T>(&())), typed::<T>))
}

/// Follows all objects of a kind as JSON.
pub(crate) fn values(
    client: &Client,
    kind: &ApiResource,
) -> impl Stream<Item = Result<Event<Value>, String>> + Send + use<> {
    watch(Api::all_with(client.clone(), kind), Ok)
}

/// Follows objects of a kind. An unreadable object is an error: a list with one does not end but starts again, so that
/// existing objects do not look deleted.
pub(crate) fn watch<W: Send + 'static>(
    api: Api<Unread>,
    read: impl Fn(Event<Value>) -> Result<W, Misfit> + Clone + Send + 'static,
) -> impl Stream<Item = Result<W, String>> + Send {
    measured(api, move |event| map(event, |(object, _)| Ok(object)).and_then(&read))
}

/// Same as [`watch`], with the length of the JSON of each object.
pub(crate) fn measured<W: Send + 'static>(
    api: Api<Unread>,
    read: impl Fn(Event<Measured>) -> Result<W, Misfit> + Clone + Send + 'static,
) -> impl Stream<Item = Result<W, String>> + Send {
    restarted(move |pause| events(api.clone(), pause), read)
}

type Events = BoxStream<'static, Result<Event<Unread>, watcher::Error>>;

fn events(api: Api<Unread>, pause: Duration) -> Events {
    let begin = stream::once(tokio::time::sleep(pause)).filter_map(|()| std::future::ready(None));
    begin.chain(watcher(api, Config::default().page_size(PAGE)).default_backoff()).boxed()
}

fn as_type<W>(read: &impl Fn(Event<Measured>) -> Result<W, Misfit>, event: Event<Unread>) -> Result<W, String> {
    let plain = map(event, |unread| Ok(unread.object.read()));
    plain.and_then(read).map_err(|misfit| format!("an object cannot be read: {misfit}"))
}

fn restarted<W: Send + 'static>(
    start: impl Fn(Duration) -> Events + Send + 'static,
    read: impl Fn(Event<Measured>) -> Result<W, Misfit> + Clone + Send + 'static,
) -> impl Stream<Item = Result<W, String>> + Send {
    let first = start(Duration::ZERO);
    stream::unfold((first, start, read), |(mut events, start, read)| async {
        let event = match events.next().await? {
            Ok(event) => event,
            Err(error) => return Some((Err(error.to_string()), (events, start, read))),
        };
        let listing = matches!(event, Event::InitApply(_));
        let read_event = if has_large(&event) {
            let read = read.clone();
            CONTROLLERS.result(move || as_type(&read, event)).await.unwrap_or_else(|error| Err(error.to_string()))
        } else {
            as_type(&read, event)
        };
        if listing && read_event.is_err() {
            events = start(AGAIN);
        }
        Some((read_event, (events, start, read)))
    })
}

#[cfg(test)]
mod tests {
    use apimachinery::pace::LARGE;
    use futures::FutureExt as _;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn unread(value: &Value) -> Unread {
        serde_json::from_str(&value.to_string()).unwrap()
    }

    #[test]
    fn the_version_is_what_the_watch_goes_on_from() {
        let object = json!({"metadata": {"name": "a", "resourceVersion": "7"}, "spec": {"x": [1]}});
        let read = unread(&object);
        let bytes = object.to_string().len();
        assert_eq!(
            (read.metadata.resource_version.as_deref(), read.object),
            (Some("7"), Came::Parsed((object, bytes)))
        );
        assert_eq!(unread(&json!({"metadata": {"resourceVersion": 7}})).metadata.resource_version, None);
    }

    #[tokio::test]
    async fn large_objects_are_read_beside_the_thread() {
        let large = json!({"metadata": {"name": "a", "resourceVersion": "7"}, "data": "x".repeat(LARGE)});
        let read = unread(&large);
        assert_eq!(read.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(read.object.clone().read().0, large);
        let here = std::thread::current().id();
        let events = move |_| stream::iter([Ok(Event::Apply(read.clone()))]).boxed();
        let aside = move |event: Event<Measured>| {
            let Event::Apply((_, bytes)) = event else { panic!("one is changed") };
            Ok((std::thread::current().id() != here, bytes))
        };
        let length = large.to_string().len();
        assert_eq!(restarted(events, aside).collect::<Vec<_>>().await, [Ok((true, length))]);
    }

    #[test]
    fn a_list_with_an_object_that_cannot_be_read_does_not_end() {
        let events = |pause: Duration| -> Events {
            let one = |name: Value| Ok(Event::InitApply(unread(&json!({"metadata": {"name": name}}))));
            let list = match pause {
                Duration::ZERO => vec![Ok(Event::Init), one(json!("a")), one(json!(1)), Ok(Event::InitDone)],
                _ => vec![
                    Ok(Event::Init),
                    one(json!("b")),
                    Ok(Event::InitDone),
                    Ok(Event::Apply(unread(&json!({"metadata": 1})))),
                    Ok(Event::Delete(unread(&json!({"metadata": {"name": "b"}})))),
                ],
            };
            stream::iter(list).boxed()
        };
        let name = |event: Event<Measured>| {
            typed::<ConfigMap>(map(event, |(object, _)| Ok(object))?).map(|event| match event {
                Event::Init => "begin".to_owned(),
                Event::InitDone => "end".to_owned(),
                Event::InitApply(one) | Event::Apply(one) => one.metadata.name.unwrap_or_default(),
                Event::Delete(one) => format!("-{}", one.metadata.name.unwrap_or_default()),
            })
        };
        let seen: Vec<_> =
            restarted(events, name).map(|one| one.unwrap_or("?".into())).collect().now_or_never().unwrap();
        assert_eq!(seen, ["begin", "a", "?", "begin", "b", "end", "?", "-b"]);
    }
}
