# The gavel service in one image: the binary, the certificates it verifies peers with, and nothing else.
#
#   docker build -t gavel .
#   docker run --rm gavel --help
#
# docs/how-to/run-in-a-container.md says how to run it, and how to name the bases by digest. BUILD_IMAGE needs cargo,
# a C compiler and CA certificates; RUNTIME_IMAGE needs glibc of at least the same version as BUILD_IMAGE.
ARG BUILD_IMAGE=rust:1.95-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082
ARG RUNTIME_IMAGE=debian:bookworm-slim@sha256:abd67ffcfa541b485a3dff59865ab629aa048a6c613e639d36e7456b0b229241

# What decides the dependencies and nothing else: manifests, the lock file, and an empty stand-in for
# each source file that cargo wants to see. A changed source leaves this stage's result as it was,
# so the long build of the dependencies below stays cached.
FROM ${BUILD_IMAGE} AS manifests
COPY . /all
WORKDIR /all
RUN set -eu; mkdir /manifests; \
    find . -name Cargo.toml -o -name Cargo.lock | while read -r file; do \
      cp --parents "$file" /manifests; \
    done; \
    find . -path './build.rs' -o -path '*/src/main.rs' -o -path '*/src/lib.rs' -o -path '*/src/bin/*.rs' -o -path '*/benches/*.rs' \
    | while read -r file; do \
      mkdir -p "/manifests/${file%/*}"; \
      echo 'fn main() {}' > "/manifests/$file"; \
    done; \
    find /manifests -exec touch --date=@0 {} +

FROM ${BUILD_IMAGE} AS build
# `release` builds in less time; what it builds is a little slower. The directory of `dev` is called `debug`.
ARG PROFILE=dist
WORKDIR /src
COPY --from=manifests /manifests ./
RUN cargo build --profile ${PROFILE} --locked --package gavel --bin gavel
COPY . .
# Cargo goes by modification times, and those of a checkout can be older than the stand-ins.
RUN find . -name '*.rs' -exec touch {} + \
    && cargo build --profile ${PROFILE} --locked --package gavel --bin gavel \
    && mkdir -p /out/data \
    && cp "${CARGO_TARGET_DIR:-target}"/*/gavel /out/gavel \
    && rm -rf "${CARGO_TARGET_DIR:-target}/${PROFILE}"

FROM ${RUNTIME_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="gavel" \
      org.opencontainers.image.description="Runs AI agents whose actions require approval, and records what was done, by whom, and with whose approval" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/gavel /usr/local/bin/gavel
# Nobody in particular: a number, so that an orchestrator can see that it is not root.
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
# gavel.db and tasks.db are made here unless DATABASE_URL and TASKS_DATABASE_URL say otherwise. They are not set
# here, or DATABASE_URL_FILE would contradict them.
WORKDIR /data
VOLUME /data
# 0.0.0.0 is safe as a default, since gavel refuses to listen there without authentication.
ENV HOME=/data \
    GAVEL_LISTEN=0.0.0.0:8080
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 CMD ["gavel", "doctor", "--live"]
ENTRYPOINT ["gavel"]
CMD ["serve"]
