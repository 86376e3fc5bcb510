use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Request;

use super::*;

/// An API with these objects, and the number of its answers.
fn api(devices: Vec<Value>, statuses: Vec<Value>) -> (Client, Arc<AtomicUsize>) {
    let (asked, lists) = (Arc::new(AtomicUsize::new(0)), Arc::new([devices, statuses]));
    let count = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        count.fetch_add(1, Ordering::Relaxed);
        let all = &lists[usize::from(request.uri().path().ends_with("devicestatuses"))];
        let query = request.uri().query().unwrap_or_default();
        let number = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.parse::<usize>().ok());
        let (from, most) = (number("continue=").unwrap_or_default(), number("limit=").unwrap_or(usize::MAX));
        let items: Vec<&Value> = all.iter().skip(from).take(most).collect();
        let next = from + items.len();
        let next = if next < all.len() { next.to_string() } else { String::new() };
        let body = json!({"metadata": {"continue": next}, "items": items}).to_string();
        async move {
            let body = http_body_util::Full::new(Bytes::from(body));
            Ok::<_, std::convert::Infallible>(http::Response::new(body))
        }
    });
    (Client::new(service, "default"), asked)
}

fn device(name: &str, properties: usize) -> Value {
    let properties: Vec<Value> = (0..properties).map(|at| json!({"name": format!("p{at}")})).collect();
    json!({"metadata": {"namespace": "ns", "name": name, "uid": "u"},
        "spec": {"nodeName": "n", "deviceModelRef": {"name": "m"}, "properties": properties}})
}

fn status(name: &str, uid: &str, value: &str, clock: &str) -> Value {
    json!({"metadata": {"namespace": "ns", "name": name, "ownerReferences": [{"kind": "Device", "uid": uid}]},
        "status": {"state": "online", "extensions": {"sampan.dev": {"stale": true}}, "twins": [
            {"propertyName": "p0", "reported": {"value": value, "metadata": {"timestamp": "1772444400000", "clock": clock}}},
            {"propertyName": "other", "reported": {"value": "7"}}]}})
}

async fn read(client: &Client) -> Value {
    serde_json::from_slice(&Devices::default().read(client).await.unwrap()).unwrap()
}

#[tokio::test]
async fn devices_have_their_last_values() {
    let mut wants = device("a", 2);
    wants["spec"]["properties"][1]["desired"] = json!({"value": "ON"});
    let devices = vec![wants, device("b", 1), device("c", 1)];
    let statuses = vec![
        status("a", "u", &"x".repeat(4096), "synchronized"),
        status("b", "u", "1", "unsynchronized"),
        status("c", "earlier", "1", ""),
    ];
    let shown = read(&api(devices, statuses).0).await;
    let a = &shown["devices"][0];
    let known = (&a["namespace"], &a["name"], &a["node"], &a["model"], &a["state"], &a["stale"]);
    assert_eq!(json!(known), json!(["ns", "a", "n", "m", "online", true]));
    assert_eq!(a["properties"][0], json!(["p0", null, "x".repeat(MOST.2), 1_772_444_400_000_u64]), "the text is cut");
    assert_eq!(a["properties"][1], json!(["p1", "ON", null, null]));
    assert_eq!(
        shown["devices"][1]["properties"][0],
        json!(["p0", null, "1", null]),
        "a clock that is not set has no time"
    );
    assert_eq!(shown["devices"][2]["properties"][0][2], Value::Null, "the status is an earlier device's");
    assert_eq!(shown["more"], false);
}

#[tokio::test]
async fn devices_are_limited_in_number_and_bytes() {
    let many = |count: usize, properties: usize| -> Vec<Value> {
        (0..count).map(|at| device(&format!("d{at:05}"), properties)).collect()
    };
    let all = read(&api(many(PAGE + 1, 1), Vec::new()).0).await;
    assert_eq!((all["devices"].as_array().unwrap().len(), &all["more"]), (PAGE + 1, &json!(false)), "a second page");
    let first = read(&api(many(MOST.0 + 1, 1), Vec::new()).0).await;
    assert_eq!((first["devices"].as_array().unwrap().len(), &first["more"]), (MOST.0, &json!(true)));
    let wide = read(&api(many(1, MOST.1 + 3), Vec::new()).0).await;
    let properties = wide["devices"][0]["properties"].as_array().unwrap().len();
    assert_eq!((properties, &wide["devices"][0]["more"]), (MOST.1, &json!(3)));
    let large: Vec<Value> = (0..MOST.0).map(|at| long(&format!("d{at:05}"))).collect();
    let text = Devices::default().read(&api(large, Vec::new()).0).await.unwrap();
    assert!(text.len() <= ROOM + 64 && text.starts_with(br#"{"more":true,"#), "{} bytes", text.len());
}

/// A device whose properties have long names.
fn long(name: &str) -> Value {
    let properties: Vec<Value> = (0..MOST.1).map(|at| json!({"name": format!("{at}{}", "x".repeat(200))})).collect();
    let mut device = device(name, 0);
    device["spec"]["properties"] = properties.into();
    device
}

#[tokio::test]
async fn devices_are_read_once_for_all_readers() {
    let (client, asked) = api(vec![device("a", 1)], Vec::new());
    let devices = Devices::default();
    for _ in 0..5 {
        devices.read(&client).await.unwrap();
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2, "one list of devices, one of statuses");
}

#[test]
fn time_that_no_browser_can_show_is_unknown() {
    let times =
        [("0", None), ("1", Some(1)), ("8640000000000000", Some(LATEST)), ("8640000000000001", None), ("-1", None)];
    for (timestamp, at) in times {
        let mut shown = of_spec(&device("a", 1));
        let twin = json!({"propertyName": "p0", "reported": {"value": "7", "metadata": {"timestamp": timestamp}}});
        report(&mut shown, &json!({"twins": [twin]}));
        assert_eq!(shown.properties[0].at, at, "{timestamp}");
    }
}
