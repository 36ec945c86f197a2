{{/*
A DaemonSet of agents. Takes a dict:
  root, component
  runtime       paths of the container runtime on the nodes
  server        address of MetaServer; empty: the API server, with the pod's own token, which contains the node's name
  resources
  placement     nodeSelector, affinity and tolerations, from larder.agentPlacements
*/}}
{{- define "larder.agents" -}}
{{- $values := .root.Values -}}
{{- $agent := $values.agent -}}
{{- $provider := $values.daemon.credentialProvider -}}
{{- $runtime := .runtime -}}
{{- $metricsToken := include "larder.metricsTokenSecret" .root -}}
{{- if and $runtime.configDir $runtime.hostsDir -}}
{{- if not (hasPrefix (printf "%s/" (clean $runtime.configDir)) (printf "%s/" (clean $runtime.hostsDir))) -}}
{{- fail (printf "runtime.hostsDir %s is not inside runtime.configDir %s, the only configuration directory that agents mount: set both" $runtime.hostsDir $runtime.configDir) -}}
{{- end -}}
{{- end -}}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ include "larder.fullname" .root }}-{{ .component }}
  namespace: {{ include "larder.namespace" .root }}
  labels:
    {{- include "larder.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
  {{- with include "larder.annotations" (list .root dict) }}
  {{- . | nindent 2 }}
  {{- end }}
spec:
  selector:
    matchLabels:
      {{- include "larder.selector" (list .root .component) | nindent 6 }}
  revisionHistoryLimit: {{ int $agent.revisionHistoryLimit }}
  updateStrategy:
    type: {{ $agent.updateStrategy.type }}
    {{- if eq $agent.updateStrategy.type "RollingUpdate" }}
    rollingUpdate:
      {{- include "larder.agentRollingUpdate" (dict "settings" $agent.updateStrategy.rollingUpdate "hostNetwork" (or $agent.hostNetwork (ne .server ""))) | nindent 6 }}
    {{- end }}
  minReadySeconds: 3
  template:
    metadata:
      labels:
        {{- include "larder.labelsWith" (list .root $agent.podLabels) | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
      annotations:
        kubectl.kubernetes.io/default-container: agent
        {{- with $values.extraCA.pem }}
        larder.dev/extra-ca: {{ sha256sum . }}
        {{- end }}
        {{- with $agent.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "larder.agentAccount" .root }}
      {{- if .server }}
      # MetaServer requires no token, and edge nodes cannot request one.
      automountServiceAccountToken: false
      {{- end }}
      {{- with include "larder.podFields" (list $agent .root) | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- $hostNetwork := or $agent.hostNetwork (ne .server "") }}
      {{- if $hostNetwork }}
      hostNetwork: true
      {{- end }}
      {{- /* With the node's resolver, registries have the same addresses as for the runtime. */}}
      {{- with $agent.dnsPolicy | default (ternary "Default" "" $hostNetwork) }}
      dnsPolicy: {{ . }}
      {{- end }}
      {{- toYaml .placement | nindent 6 }}
      {{- $podContext := deepCopy $agent.podSecurityContext }}
      {{- with $agent.seLinuxOptions }}
      {{- $podContext = set $podContext "seLinuxOptions" . }}
      {{- end }}
      {{- with $podContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: agent
          image: {{ include "larder.image" (list $agent.image .root) }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          args:
            {{- $args := include "larder.agentArgs" (dict "root" .root "runtime" $runtime "server" .server) | fromYamlArray }}
            {{- include "larder.args" (dict "args" $args "extra" $agent.extraArgs "value" "agent.extraArgs") | nindent 12 }}
          env:
            - name: NODE_NAME
              valueFrom:
                fieldRef:
                  fieldPath: spec.nodeName
            {{- include "larder.podEnv" .root | nindent 12 }}
            {{- if $provider.enable }}
            - {name: HOME, value: /root}
            {{- end }}
            {{- with $values.proxy.http }}
            - {name: HTTP_PROXY, value: {{ quote . }}}
            {{- end }}
            {{- with $values.proxy.https }}
            - {name: HTTPS_PROXY, value: {{ quote . }}}
            {{- end }}
            {{- with $values.proxy.noProxy }}
            - {name: NO_PROXY, value: {{ quote . }}}
            {{- end }}
            {{- if or $values.extraCA.pem $values.extraCA.configMap }}
            - {name: SSL_CERT_FILE, value: /etc/ssl/certs/ca-certificates.crt}
            - {name: SSL_CERT_DIR, value: /etc/larder/ca}
            {{- end }}
            {{- with $agent.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - name: http
              containerPort: {{ $agent.port }}
          {{- with include "larder.probes" $agent | trim }}
          {{- . | nindent 10 }}
          {{- end }}
          resources:
            {{- toYaml .resources | nindent 12 }}
          {{- with $agent.securityContext }}
          securityContext:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          volumeMounts:
            - {name: runtime, mountPath: /host{{ dir $runtime.socket }}}
            - {name: state, mountPath: {{ $agent.stateDir }}}
            - {name: image-filesystem, mountPath: /host{{ $runtime.imageFilesystem }}, readOnly: true}
            {{- with $runtime.configDir }}
            - {name: runtime-config, mountPath: /host{{ . }}, readOnly: true}
            {{- end }}
            {{- if $provider.enable }}
            - {name: provider-plugins, mountPath: {{ $provider.hostPath }}, readOnly: true}
            {{- if $provider.configmap }}
            - {name: provider-config, mountPath: /etc/larder/credential-provider, readOnly: true}
            {{- else if ne (dir $provider.configFile) (clean $provider.hostPath) }}
            - {name: provider-config, mountPath: {{ dir $provider.configFile }}, readOnly: true}
            {{- end }}
            {{- with $provider.awsCredentialsDir }}
            - {name: aws-credentials, mountPath: /root/.aws, readOnly: true}
            {{- end }}
            {{- end }}
            {{- if $agent.registryConfigSecret }}
            - {name: registry-config, mountPath: /etc/larder/registry, readOnly: true}
            {{- end }}
            {{- if $metricsToken }}
            - {name: metrics-token, mountPath: /etc/larder/metrics, readOnly: true}
            {{- end }}
            {{- if or $values.extraCA.pem $values.extraCA.configMap }}
            - {name: extra-ca, mountPath: /etc/larder/ca, readOnly: true}
            {{- end }}
            {{- with $agent.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: runtime
          hostPath: {path: {{ dir $runtime.socket }}, type: Directory}
        - name: state
          hostPath: {path: {{ $agent.stateDir }}, type: DirectoryOrCreate}
        - name: image-filesystem
          hostPath: {path: {{ $runtime.imageFilesystem }}, type: Directory}
        {{- with $runtime.configDir }}
        - name: runtime-config
          hostPath: {path: {{ . }}, type: DirectoryOrCreate}
        {{- end }}
        {{- if $provider.enable }}
        - name: provider-plugins
          hostPath: {path: {{ $provider.hostPath }}, type: Directory}
        {{- if $provider.configmap }}
        - name: provider-config
          configMap: {name: {{ $provider.configmap }}}
        {{- else if ne (dir $provider.configFile) (clean $provider.hostPath) }}
        - name: provider-config
          hostPath: {path: {{ dir $provider.configFile }}, type: Directory}
        {{- end }}
        {{- with $provider.awsCredentialsDir }}
        - name: aws-credentials
          hostPath: {path: {{ . }}, type: Directory}
        {{- end }}
        {{- end }}
        {{- with $agent.registryConfigSecret }}
        - name: registry-config
          secret: {secretName: {{ . }}, items: [{key: .dockerconfigjson, path: config.json}]}
        {{- end }}
        {{- with $metricsToken }}
        - name: metrics-token
          secret: {secretName: {{ . }}}
        {{- end }}
        {{- if or $values.extraCA.pem $values.extraCA.configMap }}
        - name: extra-ca
          configMap: {name: {{ $values.extraCA.configMap | default (printf "%s-extra-ca" (include "larder.fullname" .root)) }}}
        {{- end }}
        {{- with $agent.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end }}

{{/*
Where agents run: nodeSelector, affinity and tolerations of the pods of each DaemonSet of agents, by component. The one
definition of a node with an agent: the DaemonSets are rendered from it, and the controller is told it.
*/}}
{{- define "larder.agentPlacements" -}}
{{- $agent := .Values.agent -}}
{{- $kubeEdge := .Values.kubeEdge -}}
{{- $linux := dict "kubernetes.io/os" "linux" -}}
{{- /* An edge node has all labels of kubeEdge.nodeSelector, so another node lacks one of them. */ -}}
{{- $edge := list -}}
{{- if $kubeEdge.enabled -}}
{{- range $key, $value := $kubeEdge.nodeSelector -}}
{{- $edge = append $edge (dict "key" $key "operator" "NotIn" "values" (list $value)) -}}
{{- end -}}
{{- end -}}
{{- $placements := dict "agent" (dict
      "nodeSelector" (merge dict $linux ($agent.nodeSelector | default dict))
      "affinity" (include "larder.agentAffinity" (dict "affinity" $agent.affinity "notOn" $edge) | fromYaml)
      "tolerations" (include "larder.tolerations" (list $agent.tolerations $) | fromYamlArray)) -}}
{{- if $kubeEdge.enabled -}}
{{- $placements = set $placements "agent-edge" (dict
      "nodeSelector" (merge dict $linux ($kubeEdge.nodeSelector | default dict))
      "affinity" (include "larder.agentAffinity" (dict "affinity" $kubeEdge.affinity "notOn" list) | fromYaml)
      "tolerations" (include "larder.tolerations" (list $kubeEdge.tolerations $) | fromYamlArray)) -}}
{{- end -}}
{{- toYaml $placements -}}
{{- end }}

{{/* The same as the controller's setting, with the nodes whose agents are not installed by this chart. */}}
{{- define "larder.agentNodes" -}}
{{- $nodes := list -}}
{{- range include "larder.agentPlacements" . | fromYaml -}}
{{- $nodes = append $nodes . -}}
{{- end -}}
{{- toJson (concat $nodes .Values.controller.otherAgentNodes) -}}
{{- end }}

{{/*
Affinity of a DaemonSet of agents: the affinity from the values, with the expressions that keep agents off nodes which are
not theirs added to each of its required terms. Terms are alternatives, so one term without these expressions would let
agents run on such nodes. Takes a dict of affinity and notOn: expressions of which one must hold.
*/}}
{{- define "larder.agentAffinity" -}}
{{- $required := list
      (dict "key" "type" "operator" "NotIn" "values" (list "virtual-kubelet"))
      (dict "key" "eks.amazonaws.com/compute-type" "operator" "NotIn" "values" (list "fargate")) -}}
{{- $alternatives := list -}}
{{- range .notOn -}}
{{- $alternatives = append $alternatives (append $required .) -}}
{{- end -}}
{{- $alternatives = $alternatives | default (list $required) -}}
{{- $affinity := deepCopy (.affinity | default dict) -}}
{{- $nodes := $affinity.nodeAffinity | default dict -}}
{{- $given := dig "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" list $nodes -}}
{{- range $given -}}
{{- if not (or .matchExpressions .matchFields) -}}
{{- fail "a term of nodeSelectorTerms in the affinity of agents is empty, which matches no node: give it matchExpressions or matchFields, or leave it out" -}}
{{- end -}}
{{- end -}}
{{- $terms := list -}}
{{- range $term := $given | default (list dict) -}}
{{- range $alternatives -}}
{{- $expressions := concat ($term.matchExpressions | default list) . -}}
{{- $terms = append $terms (merge (dict "matchExpressions" $expressions) $term) -}}
{{- end -}}
{{- end -}}
{{- $nodes = merge (dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms)) $nodes -}}
{{- toYaml (merge (dict "nodeAffinity" $nodes) $affinity) -}}
{{- end }}

{{- define "larder.agentArgs" -}}
{{- $agent := .root.Values.agent -}}
{{- $provider := .root.Values.daemon.credentialProvider -}}
- {{ printf "--listen=%s" (include "larder.listen" (list $agent.port .root)) | quote }}
{{- if include "larder.metricsTokenSecret" .root }}
- --metrics-token-file=/etc/larder/metrics/token
{{- end }}
- --host-root=/host
- {{ printf "--runtime-endpoint=unix:///host%s" .runtime.socket | quote }}
- {{ printf "--state-dir=%s" $agent.stateDir | quote }}
- --max-concurrent-pulls={{ int $agent.maxConcurrentPulls }}
{{- if eq $agent.fetch "auto" }}
- --fetch=auto
- --connections-per-pull={{ int $agent.connectionsPerPull }}
- {{ printf "--max-bandwidth=%s" $agent.maxBandwidth | quote }}
{{- end }}
{{- if $agent.acceptForeignImages }}
- --accept-foreign-images
{{- end }}
- --image-gc-high-threshold={{ int $agent.imageGCHighThreshold }}
- --pin-budget={{ int $agent.pinBudget }}
{{- if and .runtime.configDir .runtime.hostsDir }}
- {{ printf "--hosts-dir=%s" .runtime.hostsDir | quote }}
{{- end }}
{{- with .server }}
- {{ printf "--server=%s" . | quote }}
{{- end }}
{{- if $provider.enable }}
- {{ printf "--image-credential-provider-bin-dir=%s" $provider.hostPath | quote }}
{{- if $provider.configmap }}
- --image-credential-provider-config=/etc/larder/credential-provider/CredentialProviderPlugin.yaml
{{- else }}
- {{ printf "--image-credential-provider-config=%s" $provider.configFile | quote }}
{{- end }}
{{- end }}
{{- if $agent.registryConfigSecret }}
- --registry-config=/etc/larder/registry/config.json
{{- end }}
{{- with $agent.log }}
- {{ printf "--log=%s" . | quote }}
{{- end }}
- --log-format={{ $agent.logFormat }}
{{- end }}

{{/* Settings of agents' rolling updates, unless they can never finish. Takes a dict of settings and hostNetwork. */}}
{{- define "larder.agentRollingUpdate" -}}
{{- $none := list "" "0" "0%" -}}
{{- $surges := not (has (toString (.settings.maxSurge | default "")) $none) -}}
{{- $replaces := not (has (toString (.settings.maxUnavailable | default "")) $none) -}}
{{- if and $surges $replaces -}}
{{- fail "agent.updateStrategy.rollingUpdate: Kubernetes accepts maxSurge only with maxUnavailable: 0" -}}
{{- end -}}
{{- if not (or $surges $replaces) -}}
{{- fail "agent.updateStrategy.rollingUpdate: maxUnavailable and maxSurge are both 0, so no agent could be replaced" -}}
{{- end -}}
{{- if and $surges .hostNetwork -}}
{{- fail "agent.updateStrategy.rollingUpdate.maxSurge: old and new agents would compete for a port of the node; it needs agent.hostNetwork: false and no edge nodes" -}}
{{- end -}}
{{- toYaml .settings -}}
{{- end }}
