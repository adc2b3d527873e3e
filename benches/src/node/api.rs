//! Client of the daemon's API.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::runtime::Runtime;
use tonic::transport::Channel;
use tonic::{Response, Status};
use vcuda_manager_api::v1::grants_client::GrantsClient;
use vcuda_manager_api::v1::node_client::NodeClient;
use vcuda_manager_api::v1::{self, Amounts, Grant, get_grant_request};
use vcuda_region::clock;

/// Time limit for calls, and for all processes to be known.
const DEADLINE: Duration = Duration::from_secs(30);
/// Share of a grant (thousandths), so that sixteen fit on a GPU.
const CORES_PERMILLE: u32 = 60;

/// A connection, and its runtime.
#[derive(Debug)]
pub(crate) struct Api {
    runtime: Runtime,
    grants: GrantsClient<Channel>,
    node: NodeClient<Channel>,
}

impl Api {
    pub(crate) fn connect(socket: &Path) -> Result<Self> {
        // With its own thread, as the manager closes a connection that does not answer pings for twenty seconds.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let channel = runtime.block_on(vcuda_manager_api::connect(socket, DEADLINE))?;
        Ok(Self { runtime, grants: GrantsClient::new(channel.clone()), node: NodeClient::new(channel) })
    }

    /// Creates a grant of 1 GiB and 6 %.
    pub(crate) fn create(&mut self, key: &str) -> Result<Grant> {
        let request = v1::CreateGrantRequest {
            request_id: format!("create-{key}"),
            key: key.to_owned(),
            holder: Some(v1::Holder {
                namespace: "default".to_owned(),
                pod: format!("inference-{key}"),
                container: "main".to_owned(),
                pod_uid: "3f9a2b1c-0d1e-4f5a-8b6c-7d8e9f0a1b2c".to_owned(),
            }),
            amounts: Some(amounts(1 << 30)),
            gpu_count: 1,
            ..v1::CreateGrantRequest::default()
        };
        wait(&self.runtime, self.grants.create(request))
    }

    /// Waits until `wanted` tenants are attached. Returns their number.
    pub(crate) fn until_attached(&mut self, wanted: usize) -> Result<usize> {
        let end_ns = clock::now_ns() + u64::try_from(DEADLINE.as_nanos())?;
        loop {
            let asked = self.node.list_containers(v1::ListContainersRequest::default());
            let listed = wait(&self.runtime, asked)?.containers;
            let is_in =
                |one: &&v1::Container| one.attached && one.processes.iter().any(|each| each.registered);
            let attached = listed.iter().filter(is_in).count();
            if attached >= wanted {
                return Ok(attached);
            }
            if clock::now_ns() > end_ns {
                bail!("{attached} of {wanted} containers are attached");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Median and 99th percentile of each call's latency over `times` calls (ms).
    pub(crate) fn latencies(&mut self, id: &str, times: usize) -> Result<Vec<(&'static str, [f64; 2])>> {
        let mut shown = Vec::new();
        shown.push((
            "Grants/Get",
            timed(times, |_| {
                let grant = get_grant_request::Grant::Id(id.to_owned());
                let request = v1::GetGrantRequest { grant: Some(grant) };
                wait(&self.runtime, self.grants.get(request)).map(drop)
            })?,
        ));
        shown.push((
            "Grants/List",
            timed(times, |_| wait(&self.runtime, self.grants.list(v1::ListGrantsRequest {})).map(drop))?,
        ));
        shown.push((
            "Node/ListContainers",
            timed(times, |_| {
                let request = v1::ListContainersRequest::default();
                wait(&self.runtime, self.node.list_containers(request)).map(drop)
            })?,
        ));
        shown.push((
            "Grants/Resize",
            timed(times, |turn| {
                let request = v1::ResizeGrantRequest {
                    request_id: format!("resize-{turn}"),
                    id: id.to_owned(),
                    amounts: Some(amounts((1 << 30) + (u64::try_from(turn % 2)? << 20))),
                    expected_generation: 0,
                    ..v1::ResizeGrantRequest::default()
                };
                wait(&self.runtime, self.grants.resize(request)).map(drop)
            })?,
        ));
        shown.push((
            "Grants/Create and Release",
            timed(times, |turn| {
                let made = self.create(&format!("new-{turn}"))?;
                let request = v1::ReleaseGrantRequest { id: made.id, even_if_used: false };
                wait(&self.runtime, self.grants.release(request)).map(drop)
            })?,
        ));
        Ok(shown)
    }
}

fn amounts(memory_bytes: u64) -> Amounts {
    Amounts { memory_bytes, cores_permille: CORES_PERMILLE, ..Amounts::default() }
}

fn wait<T>(runtime: &Runtime, call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T> {
    Ok(runtime.block_on(call)?.into_inner())
}

fn timed(times: usize, mut call: impl FnMut(usize) -> Result<()>) -> Result<[f64; 2]> {
    let mut times_ms = Vec::new();
    for turn in 0..times {
        let began_ns = clock::now_ns();
        call(turn)?;
        times_ms.push(clock::now_ns().saturating_sub(began_ns) as f64 / 1e6);
    }
    times_ms.sort_by(f64::total_cmp);
    let at = |percent: usize| {
        let place = times_ms.len().saturating_sub(1) * percent / 100;
        times_ms.get(place).copied().unwrap_or(f64::NAN)
    };
    Ok([at(50), at(99)])
}
