//! ResourceClaimTemplates of admitted pods, made at the API server.

use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use kube::api::PostParams;
use kube::{Api, Client};

use crate::admit::claims::Template;

/// Makes templates.
#[derive(Clone)]
pub struct Templates(Option<Client>);

impl std::fmt::Debug for Templates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Templates")
    }
}

impl Templates {
    /// With this client; without one no template can be made.
    #[must_use]
    pub fn new(client: Option<Client>) -> Self {
        Self(client)
    }

    /// Sees that a template is there. One of its name is it: the name is a hash of the content.
    ///
    /// # Errors
    /// A sentence for the pod's author.
    pub async fn ensure(&self, namespace: &str, template: &Template) -> Result<(), String> {
        let Some(client) = self.0.clone() else {
            return Err(
                "vcuda-cluster has no API server to make the pod's claim at (set [api] in its configuration)"
                    .to_owned(),
            );
        };
        let failed = |error: &dyn std::fmt::Display| {
            format!(
                "ResourceClaimTemplate {namespace}/{}: {error}; make the pod again",
                template.name
            )
        };
        let object: ResourceClaimTemplate =
            serde_json::from_value(template.object.clone()).map_err(|error| failed(&error))?;
        let api: Api<ResourceClaimTemplate> = Api::namespaced(client, namespace);
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 && status.reason == "AlreadyExists" => Ok(()),
            Err(kube::Error::Api(status)) => Err(failed(&status.message)),
            Err(error) => Err(failed(&error)),
        }
    }
}
