{{- define "larder.namespace" -}}
{{ .Values.installation.namespace | default .Release.Namespace }}
{{- end }}

{{- define "larder.labels" -}}
app.kubernetes.io/name: larder
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Labels that select the pods of a part of Larder. */}}
{{- define "larder.selector" -}}
app.kubernetes.io/name: larder
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- define "larder.image" -}}
{{- $root := index . 1 -}}
{{- with $root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{ index . 0 }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}
{{- end }}

{{/* Feature gates as JSON: {"jobs": bool, "unknown": [names]}. The last word on a gate counts, as in the program. */}}
{{- define "larder.gates" -}}
{{- $jobs := true -}}
{{- $unknown := list -}}
{{- range splitList "," (.Values.featureGates | default "") -}}
  {{- $gate := trim . -}}
  {{- if $gate -}}
    {{- $pair := splitn "=" 2 $gate -}}
    {{- $value := lower (trim ($pair._1 | default "")) -}}
    {{- if not (has $value (list "true" "false")) -}}
      {{- fail (printf "`%s` in featureGates is not of the form Name=true or Name=false" $gate) -}}
    {{- end -}}
    {{- if eq (trim $pair._0) "ImagePullJobGate" -}}
      {{- $jobs = eq $value "true" -}}
    {{- else -}}
      {{- $unknown = append $unknown (trim $pair._0) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- dict "jobs" $jobs "unknown" $unknown | toJson -}}
{{- end }}

{{/* "true" or nothing: whether jobs are served. */}}
{{- define "larder.servesJobs" -}}
{{- if (include "larder.gates" . | fromJson).jobs }}true{{ end -}}
{{- end }}

{{/* "true" or nothing: whether the policy on writers of NodeImage status is installed. */}}
{{- define "larder.hasPolicy" -}}
{{- if eq .Values.policy "always" }}true{{ end -}}
{{- if and (eq .Values.policy "auto") (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) }}true{{ end -}}
{{- end }}

{{/* How CloudCore passes on what edge nodes write: Absent, Node or CloudCore. */}}
{{- define "larder.kubeEdge" -}}
{{- if .Values.kubeEdge.enabled }}{{ .Values.kubeEdge.identity }}{{ else }}Absent{{ end -}}
{{- end }}

{{/* Where a part listens: the pod's own address and a port. */}}
{{- define "larder.listen" -}}
{{- $root := index . 1 -}}
{{- if $root.Values.ipv6 }}[$(POD_IP)]{{ else }}$(POD_IP){{ end }}:{{ index . 0 }}
{{- end }}

{{- define "larder.podEnv" -}}
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- end }}

{{/* What a container of Larder may do: nothing but its work. */}}
{{- define "larder.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "larder.nonRoot" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "larder.priorityClassName" -}}
{{ .Values.priorityClass.name | default (ternary "larder" "" .Values.priorityClass.create) }}
{{- end }}

{{- define "larder.priorityClass" -}}
{{- with include "larder.priorityClassName" . }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "larder.imagePullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The pod of a hook: the controller's program with other arguments. Takes a dict of root, account and args. */}}
{{- define "larder.hookPod" -}}
{{- $values := .root.Values -}}
serviceAccountName: {{ .account }}
restartPolicy: Never
{{- include "larder.imagePullSecrets" .root }}
{{- if $values.controller.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
nodeSelector:
  kubernetes.io/os: linux
  {{- with $values.controller.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.controller.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.controller.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "larder.nonRoot" .root | nindent 2 }}
containers:
  - name: {{ index .args 0 }}
    image: {{ include "larder.image" (list $values.controller.image .root) }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    args:
      {{- toYaml .args | nindent 6 }}
    # So that `kubectl describe pod` shows what went wrong.
    terminationMessagePolicy: FallbackToLogsOnError
    resources:
      requests: {cpu: 10m, memory: 32Mi}
      limits: {memory: 256Mi}
    securityContext:
      {{- include "larder.restricted" .root | nindent 6 }}
{{- end }}
