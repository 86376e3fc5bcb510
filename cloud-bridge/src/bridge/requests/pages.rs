//! Lists of the API, read page by page.

use apimachinery::typed;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Requests;

#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
struct Page<T> {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(default, deserialize_with = "typed::list")]
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(rename = "continue")]
    next: Option<String>,
}

impl Requests {
    /// Passes each object of the list at `path` to `take`, page by page, until that returns false. Returns whether all
    /// were read. `labels` is a selector, or empty for all objects; `size` is the number of objects of a page.
    pub(crate) async fn each<T: DeserializeOwned>(
        &self,
        path: &str,
        labels: &str,
        size: usize,
        mut take: impl FnMut(T) -> bool,
    ) -> kube::Result<bool> {
        let mut after = String::new();
        loop {
            let page: Page<T> = self.get(&format!("{path}?{}", query(labels, size, &after))).await?;
            if !page.items.into_iter().all(&mut take) {
                return Ok(false);
            }
            match page.metadata.next.filter(|next| !next.is_empty()) {
                Some(next) => after = next,
                None => return Ok(true),
            }
        }
    }
}

fn query(labels: &str, size: usize, after: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("limit", &size.to_string());
    for (name, value) in [("labelSelector", labels), ("continue", after)] {
        if !value.is_empty() {
            query.append_pair(name, value);
        }
    }
    query.finish()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;
    use http_body_util::Full;
    use kube::Client;
    use serde_json::json;

    use super::*;

    #[test]
    fn query_escapes_selector_and_token() {
        assert_eq!(query("", 5, ""), "limit=5");
        let all = query("a in (b,c),!d=é", 5, "x&limit=9");
        assert_eq!(all, "limit=5&labelSelector=a+in+%28b%2Cc%29%2C%21d%3D%C3%A9&continue=x%26limit%3D9");
    }

    /// An API that answers with these pages, and the queries that it got.
    fn api(pages: Vec<String>) -> (Requests, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let queries = Arc::clone(&asked);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let mut queries = queries.lock().unwrap();
            let body = Full::new(Bytes::from(pages[queries.len()].clone()));
            queries.push(request.uri().query().unwrap_or_default().to_owned());
            async move { Ok::<_, Infallible>(http::Response::new(body)) }
        });
        (Requests::new(Client::new(service, "default")), asked)
    }

    #[tokio::test]
    async fn list_ends_with_its_last_page_or_when_enough_is_read() {
        let first = json!({"metadata": {"continue": "a/b"}, "items": [1, 2]});
        let last = json!({"metadata": {}, "items": [3]});
        for (enough, read, all, pages) in [(9, vec![1, 2, 3], true, 2), (2, vec![1, 2], false, 1)] {
            let (requests, asked) = api(vec![first.to_string(), last.to_string()]);
            let mut found = Vec::new();
            let take = |number: u32| {
                found.push(number);
                number < enough
            };
            assert_eq!(requests.each("/api/v1/nodes", "x", 2, take).await.unwrap(), all);
            assert_eq!(found, read);
            let asked = asked.lock().unwrap();
            let expected = ["limit=2&labelSelector=x", "limit=2&labelSelector=x&continue=a%2Fb"];
            assert_eq!(*asked, expected[..pages]);
        }
    }

    #[tokio::test]
    async fn list_without_items_is_empty() {
        for page in [json!({}), json!({"items": null}), json!({"metadata": {"continue": ""}, "items": []})] {
            let (requests, _) = api(vec![page.to_string()]);
            assert!(requests.each("/api/v1/nodes", "", 2, |_: u32| unreachable!("no objects")).await.unwrap());
        }
    }
}
