{{/*
What every pod has in common: the restricted Pod Security standard, no token, its pool of nodes.
(list . user [account]): an account is named by the one that asks the Kubernetes API, and so has a token: Prometheus.
*/}}
{{- define "agentdyno.pod" -}}
{{- $top := index . 0 -}}
{{- $user := index . 1 -}}
{{- $account := "" -}}
{{- if gt (len .) 2 -}}{{- $account = index . 2 -}}{{- end -}}
serviceAccountName: {{ include "agentdyno.name" (list $top ($account | default "pods")) }}
automountServiceAccountToken: {{ ne $account "" }}
enableServiceLinks: false
{{- with $top.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ $user }}
  runAsGroup: {{ $user }}
  fsGroup: {{ $user }}
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "agentdyno.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* Requests equal to limits. */}}
{{- define "agentdyno.resources" -}}
resources:
  requests: {cpu: {{ .cpu | quote }}, memory: {{ .memory | quote }}}
  limits: {cpu: {{ .cpu | quote }}, memory: {{ .memory | quote }}}
{{- end -}}

{{/* Seconds in which a start must have come to its end: what its probe allows, from a startup, and its image's pull. */}}
{{- define "agentdyno.startSeconds" -}}
{{- add 900 (mul (int64 .periodSeconds) (int64 .failureThreshold)) -}}
{{- end -}}

{{/* The variables that the rig gives every process of a run, so that a pod's process is the local one. */}}
{{- define "agentdyno.env" -}}
- {name: PYTHONUNBUFFERED, value: "1"}
- {name: PYTHONHASHSEED, value: "0"}
- {name: NO_PROXY, value: "*"}
- {name: no_proxy, value: "*"}
{{- end -}}

{{- define "agentdyno.proofEnv" -}}
- name: AGENTDYNO_PROOF_KEY
  valueFrom:
    secretKeyRef: {name: {{ include "agentdyno.proofSecret" . | quote }}, key: proof-key}
{{- end -}}

{{/* Where the pods of all components but the SUT go: their pool where there is one, never the SUT's own node. */}}
{{- define "agentdyno.pool" -}}
{{- $top := index . 0 -}}
{{- $pool := index . 1 -}}
{{- $label := $top.Values.placement.label -}}
{{- if ne $top.Values.placement.ownNode "off" }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - {key: {{ $label | quote }}, operator: NotIn, values: [sut]}
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        preference:
          matchExpressions:
            - {key: {{ $label | quote }}, operator: In, values: [{{ $pool }}]}
{{- end }}
{{- end -}}

{{- define "agentdyno.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "agentdyno.selector" . | nindent 8 }}
{{- end -}}

{{/* A volume of ours that outlives a pod, or not: (list name claim storage). */}}
{{- define "agentdyno.storage" -}}
{{- $storage := index . 2 -}}
- name: {{ index . 0 }}
  {{- if $storage.persistent }}
  persistentVolumeClaim: {claimName: {{ index . 1 }}}
  {{- else }}
  emptyDir: {sizeLimit: {{ $storage.size }}}
  {{- end }}
{{- end -}}

{{- define "agentdyno.claim" -}}
{{- $top := index . 0 -}}
{{- $component := index . 1 -}}
{{- $storage := index . 2 -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ include "agentdyno.name" (list $top $component) }}
  labels:
    {{- include "agentdyno.labels" (list $top $component) | nindent 4 }}
spec:
  accessModes: [ReadWriteOnce]
  {{- with $storage.storageClass }}
  storageClassName: {{ . | quote }}
  {{- end }}
  resources:
    requests: {storage: {{ $storage.size }}}
{{- end -}}

{{/* A Service in front of one component: (list . component ports). */}}
{{- define "agentdyno.service" -}}
{{- $top := index . 0 -}}
{{- $component := index . 1 -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "agentdyno.name" (list $top $component) }}
  labels:
    {{- include "agentdyno.labels" (list $top $component) | nindent 4 }}
spec:
  type: ClusterIP
  selector:
    {{- include "agentdyno.selector" (list $top $component) | nindent 4 }}
    {{- if gt (len .) 3 }}
    agentdyno.io/run: {{ index . 3 | quote }}
    {{- end }}
  ports:
    {{- range $name, $port := index . 2 }}
    - {name: {{ $name }}, port: {{ int64 $port }}, targetPort: {{ $name }}, protocol: TCP}
    {{- end }}
{{- end -}}
