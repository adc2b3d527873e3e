//! Service `vcuda.v1.Grants`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tonic::{Request, Response, Status};
use vcuda_manager_api::v1;
use vcuda_manager_api::v1::check_changes_request::change::Change as Asked;
use vcuda_manager_api::v1::get_grant_request::Grant as Which;
use vcuda_manager_api::v1::grant_change::Kind;
use vcuda_manager_api::v1::grants_server;
use vcuda_quota::{CoreShare, MemorySize, Quota};

use super::deadline::{deadline_of, within};
use super::stream::{Answers, subscription};
use super::{convert, owner, show};
use crate::access::Caller;
use crate::driver_limits::StartingContainers;
use crate::grant::{Grant, Holder};
use crate::observe::DriverLimit;
use crate::state::{ChangeKind, GrantError, Grants, Planned};
use crate::suspend::Suspender;

/// Default of the grace period of `Reconcile`.
const GRACE: Duration = Duration::from_secs(30);

/// Maximum number of changes that are checked together.
const CHANGES_MAX: usize = 1024;

/// Implementation of the service.
#[derive(Debug, Clone)]
pub struct GrantsService {
    grants: Grants,
    /// Maximum duration of a request.
    deadline: Duration,
    stop: watch::Receiver<bool>,
    /// Suspends and resumes; without it both are refused.
    suspender: Option<Suspender>,
    starting: Option<Arc<StartingContainers>>,
}

impl GrantsService {
    /// Makes the service. Streams end when `stop` is true.
    pub fn new(grants: Grants, deadline: Duration, stop: watch::Receiver<bool>) -> Self {
        Self { grants, deadline, stop, suspender: None, starting: None }
    }

    /// Lets the service suspend and resume tenants.
    pub fn with_suspender(self, suspender: Suspender) -> Self {
        Self { suspender: Some(suspender), ..self }
    }

    /// Lets the service limit containers that start.
    pub fn with_starting(self, starting: Arc<StartingContainers>) -> Self {
        Self { starting: Some(starting), ..self }
    }

    fn suspender(&self) -> Result<&Suspender, Status> {
        self.suspender.as_ref().ok_or_else(|| Status::unimplemented("this manager suspends no tenants"))
    }

    pub(crate) fn grants(&self) -> &Grants {
        &self.grants
    }

    fn found(&self, request: v1::GetGrantRequest) -> Result<Arc<Grant>, Status> {
        let grant_table = self.grants.grant_table();
        let (found, which) = match request.grant {
            Some(Which::Id(id)) => (grant_table.by_id(&id).cloned(), convert::id(id)?),
            Some(Which::Key(key)) => (grant_table.by_key(&key).cloned(), convert::id(key)?),
            None => return Err(Status::invalid_argument("grant: give an id or a key")),
        };
        found.ok_or_else(|| Status::not_found(format!("{which}: no such grant")))
    }

    /// Reports what a user did to a grant. Those of pods change as pods do: that the log alone tells.
    async fn report(&self, user: Option<u32>, reason: &'static str, message: String, grant: &Grant) {
        let is_kept = grant.holder == Holder::default();
        let about = (Some(grant.id.to_string()), None);
        owner::report(self.grants.events(), user, (reason, message), about, is_kept).await;
    }

    fn shown(&self, grant: &Grant) -> v1::Grant {
        let device = self.grants.devices().device_of(grant);
        convert::grant(grant, &self.grants.directories().path(&grant.id), device)
    }
}

#[tonic::async_trait]
impl grants_server::Grants for GrantsService {
    async fn create(&self, request: Request<v1::CreateGrantRequest>) -> Result<Response<v1::Grant>, Status> {
        let time = deadline_of(&request, self.deadline);
        let user = owner::changer_of(&request);
        let limits = self.grants.users();
        let caller = owner::caller_of(&request, limits).await?;
        let connected = request.extensions().get::<Caller>().map(|caller| caller.uid);
        let request = request.into_inner();
        if request.transient {
            // A run of this name may just have ended.
            let _ = self.grants.end_unused().await;
        }
        if let Some(caller) = &caller
            && request.holder.as_ref().is_some_and(|holder| *holder != v1::Holder::default())
        {
            return Err(Status::permission_denied(format!(
                "holder: user {} may have own grants only, and not for pods; leave it out",
                caller.name
            )));
        }
        // An operator's command runs as the operator, who must reach its directory.
        let named =
            request.user_uid.or(connected.filter(|uid| request.transient && caller.is_none() && *uid != 0));
        let owner = owner::of_new_grant(caller, named, limits).await?;
        let create = convert::create(request, owner)?;
        let grant = within(time, async { Ok(self.grants.create(create).await?) }).await?;
        if !grant.is_transient {
            self.report(user, "VcudaGrantCreated", format!("{} was granted", grant.id), &grant).await;
        }
        Ok(Response::new(self.shown(&grant)))
    }

    async fn resize(&self, request: Request<v1::ResizeGrantRequest>) -> Result<Response<v1::Grant>, Status> {
        let time = deadline_of(&request, self.deadline);
        let user = owner::changer_of(&request);
        let caller = owner::caller_of(&request, self.grants.users()).await?;
        let resize = convert::resize(request.into_inner(), caller)?;
        let grant = within(time, async { Ok(self.grants.resize(resize).await?) }).await?;
        let Quota { memory_bytes, cores_permille, .. } = grant.amounts;
        let memory =
            memory_bytes.map_or_else(|| "all memory".to_owned(), |bytes| MemorySize(bytes).to_string());
        let text = format!("{} has {memory} and {} now, set", grant.id, CoreShare(cores_permille));
        self.report(user, "VcudaGrantResized", text, &grant).await;
        Ok(Response::new(self.shown(&grant)))
    }

    async fn set_holder(
        &self,
        request: Request<v1::SetHolderRequest>,
    ) -> Result<Response<v1::Grant>, Status> {
        let time = deadline_of(&request, self.deadline);
        let v1::SetHolderRequest { id, holder } = request.into_inner();
        let (id, holder) = (convert::id(id)?, convert::holder(holder.unwrap_or_default())?);
        let grant = within(time, async { Ok(self.grants.set_holder(id, holder).await?) }).await?;
        Ok(Response::new(self.shown(&grant)))
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseGrantRequest>,
    ) -> Result<Response<v1::ReleaseGrantResponse>, Status> {
        let time = deadline_of(&request, self.deadline);
        let user = owner::changer_of(&request);
        let caller = owner::caller_of(&request, self.grants.users()).await?;
        let v1::ReleaseGrantRequest { id, even_if_used } = request.into_inner();
        let id = convert::id(id)?;
        let grant = self.grants.grant_table().by_id(&id).cloned();
        let release = self.grants.release(&id, even_if_used, caller.as_ref());
        let released = within(time, async { Ok(release.await?) }).await?;
        if let Some(grant) = grant.filter(|_| released) {
            let how = if even_if_used { " by force, its processes keep the limits of then" } else { "" };
            self.report(user, "VcudaGrantReleased", format!("{id} was released{how}"), &grant).await;
        }
        Ok(Response::new(v1::ReleaseGrantResponse { released }))
    }

    async fn check_changes(
        &self,
        request: Request<v1::CheckChangesRequest>,
    ) -> Result<Response<v1::CheckChangesResponse>, Status> {
        let time = deadline_of(&request, self.deadline);
        let limits = self.grants.users();
        let caller = owner::caller_of(&request, limits).await?;
        let asked = request.into_inner().changes;
        if asked.len() > CHANGES_MAX {
            return Err(Status::invalid_argument(format!("changes: {}; at most {CHANGES_MAX}", asked.len())));
        }
        let mut changes = Vec::new();
        for change in asked {
            changes.push(match change.change {
                Some(Asked::Create(create)) => {
                    let owner = owner::of_new_grant(caller.clone(), create.user_uid, limits).await?;
                    Planned::Create(convert::create(create, owner)?)
                }
                Some(Asked::Resize(resize)) => Planned::Resize(convert::resize(resize, caller.clone())?),
                Some(Asked::Release(release)) => Planned::Release(convert::id(release.id)?),
                None => return Err(Status::invalid_argument("changes: give each of them")),
            });
        }
        let refusals = within(time, async { Ok(self.grants.check_changes(changes).await?) }).await?;
        let text = |refusal: Option<GrantError>| refusal.map_or_else(String::new, |why| why.to_string());
        Ok(Response::new(v1::CheckChangesResponse { refusals: refusals.into_iter().map(text).collect() }))
    }

    async fn get(&self, request: Request<v1::GetGrantRequest>) -> Result<Response<v1::Grant>, Status> {
        let grant = self.found(request.into_inner())?;
        Ok(Response::new(self.shown(&grant)))
    }

    async fn get_container_edits(
        &self,
        request: Request<v1::GetGrantRequest>,
    ) -> Result<Response<v1::ContainerEdits>, Status> {
        let time = deadline_of(&request, self.deadline);
        let grant = self.found(request.into_inner())?;
        let edits = within(time, async { Ok(self.grants.edits(&grant).await?) }).await?;
        Ok(Response::new(convert::edits(&edits)))
    }

    async fn limit_container(
        &self,
        request: Request<v1::LimitContainerRequest>,
    ) -> Result<Response<v1::LimitContainerResponse>, Status> {
        let v1::LimitContainerRequest { id, pid } = request.into_inner();
        let grant = self.found(v1::GetGrantRequest { grant: Some(Which::Id(id)) })?;
        let inventory = self.grants.inventory();
        if inventory.gpus.is_empty() {
            return Err(Status::unavailable(
                "NVML lists no GPU, so it is not known whether the driver has memory limits",
            ));
        }
        if !inventory.has_memory_limits {
            return Ok(Response::new(v1::LimitContainerResponse::default()));
        }
        let starting = self.starting.as_ref();
        let starting =
            starting.ok_or_else(|| Status::unimplemented("this manager sets no limits of the driver"))?;
        let missing = match starting.limit(grant.id.to_string(), pid).await {
            DriverLimit::Missing(why) => why,
            DriverLimit::None | DriverLimit::Set => String::new(),
        };
        Ok(Response::new(v1::LimitContainerResponse { missing }))
    }

    async fn list(
        &self,
        _: Request<v1::ListGrantsRequest>,
    ) -> Result<Response<v1::ListGrantsResponse>, Status> {
        // A ledger that cannot be written is reported by itself.
        let _ = self.grants.end_unused().await;
        let grant_table = self.grants.grant_table();
        Ok(Response::new(v1::ListGrantsResponse {
            grants: grant_table.grants().map(|grant| self.shown(grant)).collect(),
            revision: grant_table.revision,
        }))
    }

    type WatchStream = Answers<v1::GrantChange>;

    async fn watch(&self, _: Request<v1::WatchGrantsRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let (grant_table, changes) = self.grants.listen();
        let service = self.clone();
        let shown = move |kind: Kind, grant: &Grant| v1::GrantChange {
            kind: kind.into(),
            grant: Some(service.shown(grant)),
        };
        let present: Vec<_> = grant_table.grants().cloned().collect();
        let show = shown.clone();
        let first = present
            .into_iter()
            .map(move |grant| show(Kind::Present, &grant))
            .chain(std::iter::once(v1::GrantChange { kind: Kind::Synced.into(), grant: None }));
        let message = move |change: crate::state::Change| {
            let kind = match change.kind {
                ChangeKind::Created => Kind::Created,
                ChangeKind::Resized => Kind::Resized,
                ChangeKind::Released => Kind::Released,
            };
            Some(shown(kind, &change.grant))
        };
        Ok(Response::new(subscription(first, Some(changes), message, self.stop.clone())))
    }

    async fn reconcile(
        &self,
        request: Request<v1::ReconcileRequest>,
    ) -> Result<Response<v1::ReconcileResponse>, Status> {
        let time = deadline_of(&request, self.deadline);
        let request = request.into_inner();
        let living = convert::keys(&request.key_prefix, request.living_keys)?;
        let grace = match request.grace_ms {
            0 => GRACE,
            given => Duration::from_millis(given.into()),
        };
        let work = async {
            let reconciled = self.grants.reconcile(&request.key_prefix, &living, grace);
            Ok(reconciled.await?)
        };
        let reconciled = within(time, work).await?;
        let texts = |ids: &[crate::grant::GrantId]| ids.iter().map(ToString::to_string).collect();
        Ok(Response::new(v1::ReconcileResponse {
            unknown_keys: reconciled.unknown_keys.clone(),
            missing_ids: texts(&reconciled.missing),
            released_ids: texts(&reconciled.released),
        }))
    }

    async fn suspend(
        &self,
        request: Request<v1::SuspendRequest>,
    ) -> Result<Response<v1::SuspendResponse>, Status> {
        let user = owner::changer_name(&request).await;
        let id = convert::id(request.into_inner().id)?;
        let state = self.suspender()?.suspend(&id, user).await?;
        Ok(Response::new(show::suspended(state)))
    }

    async fn check_suspend(
        &self,
        request: Request<v1::SuspendRequest>,
    ) -> Result<Response<v1::CheckSuspendResponse>, Status> {
        let id = convert::id(request.into_inner().id)?;
        let checks = self.suspender()?.checks(&id).await?;
        Ok(Response::new(show::checks(checks)))
    }

    async fn resume(
        &self,
        request: Request<v1::SuspendRequest>,
    ) -> Result<Response<v1::SuspendResponse>, Status> {
        let user = owner::changer_name(&request).await;
        let id = convert::id(request.into_inner().id)?;
        let state = self.suspender()?.resume(&id, user).await?;
        Ok(Response::new(show::suspended(state)))
    }
}
