# One node in a container. The lock is installed with its hashes; what runs is not root and owns nothing but its volume.
# Name the base by its digest, so that the same one is built on every time:
#   docker build --build-arg BASE=python:3.12-slim@sha256:... (docs/deploy.md says how to find it)
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
WORKDIR /build
COPY requirements.lock ./
RUN python -m venv /opt/penstock \
    && /opt/penstock/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN /opt/penstock/bin/pip install --no-cache-dir --no-build-isolation --no-deps .

FROM ${BASE}
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/penstock penstock
COPY --from=build /opt/penstock /opt/penstock
ENV PATH=/opt/penstock/bin:$PATH PYTHONDONTWRITEBYTECODE=1
USER penstock
WORKDIR /var/lib/penstock
VOLUME /var/lib/penstock
# admin, dht, storage, mailbox, omnigate, passport, interop, dht's HTTP. All listen on loopback until told otherwise.
EXPOSE 5300 5302 5303 5305 5306 5307 5309 5312
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 \
    CMD ["penstock", "status", "--data-dir", "/var/lib/penstock/data"]
ENTRYPOINT ["penstock"]
CMD ["up", "--data-dir", "/var/lib/penstock/data"]
