//! Creating a container, with everything that confines it. Nothing here comes from a caller but what [`Plan`] has.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, RestartPolicy,
    RestartPolicyNameEnum,
};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, CreateImageOptionsBuilder, UploadToContainerOptionsBuilder,
};
use futures_util::TryStreamExt;

use super::Labels;
use super::MARK;
use super::containers::Container;
use super::{Engine, EngineFault};

/// The directory of the container for what must not be on a disk, such as credentials.
pub(crate) const RUN: &str = "/run/gavel";
/// Below this, the container keeps what its scripts wrote and how they ended.
const CALLS: &str = "var/lib/gavel/calls/";

/// A container to create.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Its name in the engine. The same call has the same name, so that it can be created only once.
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) workdir: String,
    /// `NAME=value`.
    pub(crate) env: Vec<String>,
    pub(crate) memory_mb: u32,
    pub(crate) cpus: u32,
    pub(crate) pids: u32,
    pub(crate) network: String,
    /// The operator's mounts.
    pub(crate) mounts: Vec<String>,
    pub(crate) labels: Labels,
}

impl Engine {
    /// Creates a container, and does not start it.
    pub(crate) async fn create(&self, plan: &Plan) -> Result<String, EngineFault> {
        let options = CreateContainerOptionsBuilder::new().name(&plan.name).build();
        let created = self.docker().await?.create_container(Some(options), body(plan)).await?;
        Ok(created.id)
    }

    /// Gives a user other than root a working directory and a place for the state of scripts that it can write to.
    pub(crate) async fn prepare(&self, container: &Container) -> Result<(), EngineFault> {
        let user = container.user.split(':').next().unwrap_or_default();
        if ["", "0", "root"].contains(&user) {
            return Ok(());
        }
        let archive = directories(&[CALLS, container.workdir.trim_start_matches('/')]);
        let archive = archive.map_err(|_| EngineFault::Failed)?;
        let options = UploadToContainerOptionsBuilder::new().path("/").build();
        let body = bollard::body_full(archive.into());
        Ok(self
            .docker()
            .await?
            .upload_to_container(&container.id, Some(options), body)
            .await?)
    }

    /// Pulls an image from its registry.
    pub(crate) async fn pull(&self, image: &str) -> Result<(), EngineFault> {
        let options = CreateImageOptionsBuilder::new().from_image(image).build();
        let stream = self.docker().await?.create_image(Some(options), None, None);
        let pulled: Result<(), _> = stream.try_for_each(|_| std::future::ready(Ok(()))).await;
        Ok(pulled?)
    }
}

fn body(plan: &Plan) -> ContainerCreateBody {
    let memory = i64::from(plan.memory_mb) * 1024 * 1024;
    let tmpfs = [
        ("/tmp", "rw,exec,nosuid,nodev,size=512m,mode=1777"),
        (RUN, "rw,noexec,nosuid,nodev,size=1m,mode=1777"),
    ];
    let host = HostConfig {
        binds: Some(plan.mounts.clone()).filter(|mounts| !mounts.is_empty()),
        cap_drop: Some(vec!["ALL".to_owned()]),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        ipc_mode: Some("private".to_owned()),
        log_config: Some(HostConfigLogConfig {
            typ: Some("none".to_owned()),
            config: None,
        }),
        memory: Some(memory),
        // No swap beyond the memory.
        memory_swap: Some(memory),
        nano_cpus: Some(i64::from(plan.cpus) * 1_000_000_000),
        network_mode: Some(plan.network.clone()),
        pids_limit: Some(i64::from(plan.pids)),
        privileged: Some(false),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        tmpfs: Some(HashMap::from(
            tmpfs.map(|(path, options)| (path.to_owned(), options.to_owned())),
        )),
        ..HostConfig::default()
    };
    // Waits for children, so that no ended process of a script is left as a zombie.
    let wait = format!("exec env {MARK}=init /bin/sh -c 'while :; do sleep 86400 & wait; done'");
    ContainerCreateBody {
        image: Some(plan.image.clone()),
        entrypoint: Some(vec!["/bin/sh".to_owned(), "-c".to_owned()]),
        cmd: Some(vec![wait]),
        env: Some(plan.env.clone()),
        working_dir: Some(plan.workdir.clone()),
        labels: Some(plan.labels.write()),
        host_config: Some(host),
        ..ContainerCreateBody::default()
    }
}

/// A tar of empty directories that everyone may write to.
fn directories(paths: &[&str]) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for path in paths.iter().filter(|path| !path.is_empty()) {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_mode(0o1777);
        header.set_size(0);
        archive.append_data(
            &mut header,
            format!("{}/", path.trim_end_matches('/')),
            std::io::empty(),
        )?;
    }
    archive.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What would weaken a container is in no field of the request.
    #[test]
    fn a_container_is_confined() {
        let plan = Plan {
            name: "gavel-x".to_owned(),
            image: "a:1".to_owned(),
            workdir: "/work".to_owned(),
            env: vec![],
            memory_mb: 64,
            cpus: 1,
            pids: 32,
            network: "none".to_owned(),
            mounts: vec![],
            labels: Labels::default(),
        };
        let host = body(&plan).host_config.expect("a host configuration");
        assert_eq!(host.cap_drop, Some(vec!["ALL".to_owned()]));
        assert_eq!(host.network_mode.as_deref(), Some("none"));
        assert_eq!((host.memory, host.memory_swap), (Some(67_108_864), Some(67_108_864)));
        for absent in [&host.cap_add, &host.binds, &host.volumes_from] {
            assert_eq!(absent, &None);
        }
        assert_eq!((host.pid_mode, host.userns_mode, host.uts_mode), (None, None, None));
        assert_eq!((host.devices, host.port_bindings, host.mounts), (None, None, None));
    }
}
