//! The topics to which a user may publish and subscribe. Decides by topics only.

use super::filter::Filter;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rights {
    all: bool,
    read: Vec<Filter>,
    write: Vec<Filter>,
}

impl Rights {
    /// Rights of every client, if no users are configured.
    pub(super) fn all() -> Self {
        Self { all: true, ..Self::default() }
    }

    pub(super) const fn are_all(&self) -> bool {
        self.all
    }

    /// One more: `all`, `device=NAMESPACE/NAME`, `topic=FILTER`, `read=FILTER` or `write=FILTER`.
    ///
    /// # Errors
    /// The reason why the right is malformed.
    pub(super) fn add(&mut self, right: &str) -> Result<(), String> {
        if right == "all" {
            self.all = true;
            return Ok(());
        }
        let Some((kind, what)) = right.split_once('=') else { return Err(format!("{right:?} is no right")) };
        let filter = |text: &str| Filter::new(text).ok_or_else(|| format!("{text:?} is no filter"));
        match kind {
            "device" => {
                let is_name = |name: &str| !name.is_empty() && !name.contains(['+', '#', '/', '\0']);
                if !what.split_once('/').is_some_and(|(namespace, name)| is_name(namespace) && is_name(name)) {
                    return Err(format!("{what:?} is no NAMESPACE/NAME of a device"));
                }
                for root in ["$hw", "$ke"] {
                    let own = filter(&format!("{root}/events/device/{what}/#"))?;
                    self.read.push(own.clone());
                    self.write.push(own);
                }
            }
            "topic" => {
                self.read.push(filter(what)?);
                self.write.push(filter(what)?);
            }
            "read" => self.read.push(filter(what)?),
            "write" => self.write.push(filter(what)?),
            _ => return Err(format!("{right:?} is no right")),
        }
        Ok(())
    }

    pub(super) fn may_publish(&self, topic: &str) -> bool {
        self.all || self.write.iter().any(|filter| filter.matches(topic))
    }

    /// Whether the user may receive all topics that this filter matches.
    pub(super) fn may_subscribe(&self, filter: &Filter) -> bool {
        self.all || self.read.iter().any(|right| right.covers(filter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(words: &[&str]) -> Rights {
        let mut rights = Rights::default();
        words.iter().for_each(|word| rights.add(word).expect("a right"));
        rights
    }

    #[test]
    fn a_device_speaks_for_itself_alone() {
        let rights = rights(&["device=default/t1", "read=house/#", "write=house/t1"]);
        let filter = |text: &str| Filter::new(text).expect("a filter");
        assert!(rights.may_publish("$hw/events/device/default/t1/twin/update"));
        assert!(!rights.may_publish("$hw/events/device/default/t2/twin/update"));
        assert!(!rights.may_publish("$hw/events/device/default/t1x/twin/update"));
        assert!(!rights.may_publish("$hw/events/node/n/membership/get"));
        assert!(rights.may_publish("house/t1") && !rights.may_publish("house/t2"));
        assert!(rights.may_subscribe(&filter("$hw/events/device/default/t1/twin/update/+")));
        assert!(rights.may_subscribe(&filter("house/#")) && !rights.may_subscribe(&filter("#")));
        for wide in ["$hw/#", "$hw/events/device/+/+/#", "$hw/events/device/default/+/twin/update/delta"] {
            assert!(!rights.may_subscribe(&filter(wide)), "{wide}");
        }
        assert!(Rights::all().may_subscribe(&filter("#")));
        assert!(!Rights::default().may_publish("a"));
    }

    #[test]
    fn malformed_right_is_reported() {
        for word in ["", "every", "device=", "device=a", "device=a/+", "device=a/b/c", "read=a#", "may=a", "device"] {
            assert!(Rights::default().add(word).is_err(), "{word}");
        }
    }
}
