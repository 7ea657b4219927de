# Builds the images of both tiers and of the migration:
#   docker build --target gateway -t petstore-gateway .
#   docker build --target inventory-svc -t petstore-inventory-svc .
#   docker build --target migrate -t petstore-migrate .
# All images hold the same files. To run another command in any of them, pass --entrypoint node and, as the first
# argument, /app/dist/gateway/accounts/cli/keys.js (keys) or /app/dist/inventory-svc/cli/stock.js (stock).

# The Node version of .ci/node-24. A digest pins the bytes too: --build-arg NODE_IMAGE=node:…@sha256:…
ARG NODE_IMAGE=node:24.21.0-bookworm-slim

FROM ${NODE_IMAGE} AS build
WORKDIR /app
COPY package.json package-lock.json ./
COPY .ci/node-24 .ci/node-24/
RUN npm ci --ignore-scripts
COPY . ./
# Every user can read the files of the image, whatever mode they have in the checkout.
RUN npm run build && chmod -R a+rX dist package.json LICENSE

FROM ${NODE_IMAGE} AS dependencies
WORKDIR /app
COPY package.json package-lock.json ./
COPY .ci/node-24 .ci/node-24/
RUN npm ci --ignore-scripts --omit=dev --omit=optional
# The list of packages, without what differs in each build. `--omit=dev` would leave out packages that serve both uses.
RUN npm pkg delete devDependencies optionalDependencies workspaces \
  && npm sbom --sbom-format=cyclonedx > sbom.json \
  && sed -i '/"serialNumber":/d; /"timestamp":/d' sbom.json

FROM ${NODE_IMAGE} AS app
# Nothing is installed in a running container.
RUN rm -rf /usr/local/lib/node_modules /usr/local/bin/npm /usr/local/bin/npx /usr/local/bin/corepack \
  /usr/local/bin/yarn /usr/local/bin/yarnpkg /opt/yarn*
WORKDIR /app
COPY --from=dependencies /app/node_modules node_modules/
COPY --from=build /app/dist dist/
COPY --from=build /app/package.json /app/LICENSE ./
COPY --from=dependencies /app/sbom.json ./
# A numeric id lets Kubernetes check that the user is not root. Root owns all files, so the process cannot change them.
USER 1000:1000
ENV NODE_ENV=production
STOPSIGNAL SIGTERM
ARG VERSION="" REVISION="" CREATED=""
LABEL org.opencontainers.image.licenses="Apache-2.0" \
  org.opencontainers.image.version="${VERSION}" \
  org.opencontainers.image.revision="${REVISION}" \
  org.opencontainers.image.created="${CREATED}"

FROM app AS migrate
LABEL org.opencontainers.image.title="petstore migrate"
ENTRYPOINT ["node", "/app/dist/deploy/migrate.js"]

FROM app AS inventory-svc
LABEL org.opencontainers.image.title="petstore inventory-svc"
ENV INVENTORY_LISTEN=0.0.0.0:50051 INVENTORY_ADMIN_LISTEN=0.0.0.0:50052
EXPOSE 50051 50052
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s \
  CMD ["node", "-e", "fetch(`http://${process.env.INVENTORY_ADMIN_LISTEN}/readyz`).then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["node", "/app/dist/inventory-svc/main.js"]

FROM app AS gateway
LABEL org.opencontainers.image.title="petstore gateway"
ENV GATEWAY_LISTEN=0.0.0.0:8080 GATEWAY_ADMIN_LISTEN=0.0.0.0:8081
EXPOSE 8080 8081
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s \
  CMD ["node", "-e", "fetch(`http://${process.env.GATEWAY_ADMIN_LISTEN}/readyz`).then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["node", "--max-semi-space-size=32", "/app/dist/gateway/main.js"]
