//! A GPU that gives each context a slice in turn.

use super::STEP_NS;
use super::tenant::{Tenant, TimingEvent};

const SLICE_NS: u64 = 2_000_000;
const SWITCH_NS: u64 = 20_000;

/// The GPU: its resident context, and the rest of its slice and of the switch to it.
pub(super) struct Gpu {
    resident: usize,
    slice_ns: u64,
    switch_ns: u64,
}

impl Gpu {
    pub(super) fn new() -> Self {
        Self {
            resident: 0,
            slice_ns: SLICE_NS,
            switch_ns: 0,
        }
    }

    pub(super) fn run(&mut self, tenants: &mut [Tenant], from_ns: u64) {
        let mut left_ns = STEP_NS;
        while left_ns > 0 {
            if self.switch_ns > 0 {
                let part = self.switch_ns.min(left_ns);
                (self.switch_ns, left_ns) = (self.switch_ns - part, left_ns - part);
                continue;
            }
            let count = tenants.len();
            let mut others = (1..count).map(|step| (self.resident + step) % count);
            let other = others.find(|other| !tenants[*other].queue.is_empty());
            let is_idle = tenants[self.resident].queue.is_empty();
            if is_idle || self.slice_ns == 0 {
                match other {
                    Some(other) => {
                        *self = Self {
                            resident: other,
                            slice_ns: SLICE_NS,
                            switch_ns: SWITCH_NS,
                        }
                    }
                    None if is_idle => return,
                    None => self.slice_ns = SLICE_NS,
                }
                continue;
            }
            let tenant = &mut tenants[self.resident];
            for event in tenant
                .events
                .iter_mut()
                .take_while(|event| event.after <= tenant.done)
            {
                if event.start_ns == TimingEvent::NOT_YET {
                    event.start_ns = Some(from_ns + STEP_NS - left_ns);
                }
            }
            let kernel = tenant.queue.front_mut().unwrap();
            let part = (*kernel).min(left_ns).min(self.slice_ns);
            *kernel -= part;
            (left_ns, self.slice_ns) = (left_ns - part, self.slice_ns - part);
            tenant.service_ns += part;
            if *kernel == 0 {
                tenant.queue.pop_front();
                tenant.done += 1;
                tenant.ends.push_back((tenant.done, from_ns + STEP_NS - left_ns));
            }
        }
    }
}
