//! Desired values on their way to hardware.

use tokio::time::Instant;

use super::Device;
use crate::drivers::{Driver, Fault};

impl<D: Driver> Device<D> {
    /// Writes each desired value once. If it is unknown whether an earlier process wrote it, the hardware is read
    /// first.
    pub(super) async fn write(&mut self) {
        let Self { shared, plan, progress: all, once, .. } = self;
        let mut silent_until = None;
        for (property, progress) in plan.properties.iter().zip(all.iter_mut()) {
            let (id, name) = (&plan.id, &property.name);
            let Some(desired) = &property.desired else {
                progress.seen = true;
                shared.written.forget(id, name).await;
                continue;
            };
            let last = shared.written.get(id, name);
            if last.as_deref() == Some(desired.text.as_str()) || progress.write.at > Instant::now() {
                continue;
            }
            let trouble = format!("desired value of {name}");
            let unknown = D::KEEPS && last.is_none() && !progress.seen;
            let done = match if unknown { Some(shared.driver.read(&property.point).await) } else { None } {
                Some(Ok(held)) if D::is_same(&property.point, &held, &desired.value) => {
                    log::info!("{id}: {name} is {} already", desired.text);
                    Ok(())
                }
                Some(Err(Fault::Silent(why))) => Err(Fault::Silent(why)),
                _ => shared.driver.write(&property.point, &desired.value).await.inspect(|()| {
                    log::info!("{id}: {name} is {} now", desired.text);
                }),
            };
            match done {
                Ok(()) => {
                    progress.seen = true;
                    shared.written.put(id, name, &desired.text).await;
                    once.over(id, &trouble);
                    let now = Instant::now();
                    (progress.collect_at, progress.report_at) = (now, now);
                }
                Err(fault) => {
                    once.warn(id, &trouble, &fault.to_string());
                    progress.write.again(Instant::now());
                    if matches!(fault, Fault::Silent(_)) {
                        silent_until = Some(progress.write.at);
                        break;
                    }
                }
            }
        }
        // The others wait as long as it does: each would wait for the same silence.
        if let Some(until) = silent_until {
            all.iter_mut().for_each(|progress| progress.write.at = progress.write.at.max(until));
        }
    }
}
