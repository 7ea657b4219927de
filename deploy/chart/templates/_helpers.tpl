{{/* Most of these templates take (list $ $tier), where $tier is a key of the values: gateway or inventory-svc. */}}

{{- define "petstore.name" -}}
{{ (index . 0).Release.Name }}-{{ index . 1 }}
{{- end }}

{{- define "petstore.selector" -}}
app.kubernetes.io/name: petstore-inventory
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "petstore.labels" -}}
{{ include "petstore.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ (index . 0).Chart.Name }}-{{ (index . 0).Chart.Version }}
{{- end }}

{{- define "petstore.image" -}}
{{- $image := (index . 0).Values.image -}}
{{- $digest := index $image.digests (index . 1) -}}
{{ with $image.registry }}{{ . }}/{{ end }}petstore-{{ index . 1 }}
{{- if $digest }}@{{ $digest }}{{ else }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}{{ end }}
{{- end }}

{{/* The Service whose name resolves to the address of each ready pod, so that gRPC clients balance by themselves. */}}
{{- define "petstore.inventoryService" -}}
{{ .Release.Name }}-inventory-svc-headless
{{- end }}

{{- define "petstore.port" -}}
{{ ternary "8080" "50051" (eq . "gateway") }}
{{- end }}

{{- define "petstore.adminPort" -}}
{{ ternary "8081" "50052" (eq . "gateway") }}
{{- end }}

{{- define "petstore.portName" -}}
{{ ternary "http" "grpc" (eq . "gateway") }}
{{- end }}

{{/* All settings of a tier except its secrets. */}}
{{- define "petstore.settings" -}}
{{- $root := index . 0 -}}
{{- $tier := index . 1 -}}
{{- $values := index $root.Values $tier -}}
{{- range $name, $value := $values.settings -}}
{{ $name }}: {{ $value | quote }}
{{ end -}}
{{- if eq $tier "gateway" -}}
GATEWAY_LISTEN: 0.0.0.0:{{ include "petstore.port" $tier }}
GATEWAY_ADMIN_LISTEN: 0.0.0.0:{{ include "petstore.adminPort" $tier }}
{{- /* The largest number there can be, with the extra gateway of a rolling update: shares never exceed the limits. */}}
GATEWAY_REPLICAS: {{ add $values.replicas.max 1 | quote }}
INVENTORY_ADDRESS: dns:///{{ include "petstore.inventoryService" $root }}:{{ include "petstore.port" "inventory-svc" }}
{{- $tls := $root.Values.tls.issuerRef.name }}
GATEWAY_INVENTORY_TLS_CERT: {{ ternary "/tls/tls.crt" "" (ne $tls "") | quote }}
GATEWAY_INVENTORY_TLS_KEY: {{ ternary "/tls/tls.key" "" (ne $tls "") | quote }}
GATEWAY_INVENTORY_TLS_CA: {{ ternary "/tls/ca.crt" "" (ne $tls "") | quote }}
GATEWAY_INVENTORY_TLS_SERVER_NAME: {{ ternary (include "petstore.inventoryService" $root) "" (ne $tls "") | quote }}
{{- else -}}
INVENTORY_LISTEN: 0.0.0.0:{{ include "petstore.port" $tier }}
INVENTORY_ADMIN_LISTEN: 0.0.0.0:{{ include "petstore.adminPort" $tier }}
{{- $tls := $root.Values.tls.issuerRef.name }}
INVENTORY_TLS_CERT: {{ ternary "/tls/tls.crt" "" (ne $tls "") | quote }}
INVENTORY_TLS_KEY: {{ ternary "/tls/tls.key" "" (ne $tls "") | quote }}
INVENTORY_TLS_CLIENT_CA: {{ ternary "/tls/ca.crt" "" (ne $tls "") | quote }}
INVENTORY_TLS_ROLES: {{ ternary (include "petstore.roles" $root) "" (ne $tls "") | quote }}
INVENTORY_INSECURE: {{ ternary "0" "1" (ne $tls "") | quote }}
{{- end }}
{{- end }}

{{/* The name in a tier's certificate. Takes the tier. */}}
{{- define "petstore.identity" -}}
spiffe://petstore/{{ . }}
{{- end }}

{{/* The roles of callers by the names in their certificates. */}}
{{- define "petstore.roles" -}}
{{ include "petstore.identity" "gateway" }}=writer
{{- range $name, $role := .Values.tls.callers }},{{ $name }}={{ $role }}{{ end }}
{{- end }}

{{/* The part that all pods share. Takes (list $ $tier). */}}
{{- define "petstore.pod" -}}
{{- $values := index (index . 0).Values (index . 1) -}}
automountServiceAccountToken: false
# Variables of other services could be mistaken for settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
  seccompProfile: { type: RuntimeDefault }
{{- with (index . 0).Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- $placed := dict }}
{{- range $name := list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with index $values $name }}{{ $_ := set $placed $name . }}{{ end }}
{{- end }}
{{- with $placed }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "petstore.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{/* One variable from a secret. Takes (list secret name). */}}
{{- define "petstore.secretVariable" -}}
- name: {{ index . 1 }}
  valueFrom: { secretKeyRef: { name: {{ index . 0 }}, key: {{ index . 1 }} } }
{{- end }}

{{/* The hosts of GATEWAY_SERVERS as a JSON list. */}}
{{- define "petstore.hosts" -}}
{{- $hosts := list -}}
{{- range splitList "," .Values.gateway.settings.GATEWAY_SERVERS -}}
{{- with (urlParse (trim .)).hostname -}}
{{- $hosts = append $hosts . -}}
{{- end -}}
{{- end -}}
{{ $hosts | uniq | toJson }}
{{- end }}
