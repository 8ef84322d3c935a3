package pull

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// column is a printer column of a definition.
type column = apiextensionsv1.CustomResourceColumnDefinition

func text(name, path string) column { return column{Name: name, Type: "string", JSONPath: path} }

func count(name, path string) column { return column{Name: name, Type: "integer", JSONPath: path} }

func since(name, path string) column { return column{Name: name, Type: "date", JSONPath: path} }

// wide makes a column one that only kubectl get -o wide shows.
func wide(c column) column {
	c.Priority = 1
	return c
}

var age = since("Age", ".metadata.creationTimestamp")

var (
	desired    = count("Desired", ".spec.replicas")
	current    = count("Current", ".status.replicas")
	ready      = count("Ready", ".status.readyReplicas")
	upToDate   = count("Up-To-Date", ".status.updatedReplicas")
	available  = count("Available", ".status.availableReplicas")
	containers = []column{
		wide(text("Container", ".spec.template.spec.containers[0].name")), wide(text("Image", ".spec.template.spec.containers[0].image")),
	}
	selector = wide(text("Selector", ".spec.selector.matchLabels"))
)

// builtInColumns are columns of types that API servers have compiled in. They compute their columns, and do not publish paths. These are
// the ones that come closest and consist of a path each: no sums, no texts of several fields, and of a list only the first item. The age
// is added to each.
var builtInColumns = map[schema.GroupVersionResource][]column{
	apps("deployments"):  slices.Concat([]column{ready, desired, upToDate, available}, containers, []column{selector}),
	apps("replicasets"):  slices.Concat([]column{desired, current, ready}, containers, []column{selector}),
	apps("statefulsets"): slices.Concat([]column{ready, desired}, containers),
	apps("daemonsets"): slices.Concat([]column{
		count("Desired", ".status.desiredNumberScheduled"), count("Current", ".status.currentNumberScheduled"),
		count("Ready", ".status.numberReady"), count("Up-To-Date", ".status.updatedNumberScheduled"),
		count("Available", ".status.numberAvailable"), text("Node Selector", ".spec.template.spec.nodeSelector"),
	}, containers, []column{selector}),
	batch("jobs"): slices.Concat([]column{
		text("Complete", `.status.conditions[?(@.type=="Complete")].status`), count("Completions", ".spec.completions"),
		count("Succeeded", ".status.succeeded"), count("Active", ".status.active"), count("Failed", ".status.failed"),
	}, containers),
	batch("cronjobs"): {
		text("Schedule", ".spec.schedule"), text("Timezone", ".spec.timeZone"), {Name: "Suspend", Type: "boolean", JSONPath: ".spec.suspend"},
		since("Last Schedule", ".status.lastScheduleTime"),
		wide(text("Container", ".spec.jobTemplate.spec.template.spec.containers[0].name")),
		wide(text("Image", ".spec.jobTemplate.spec.template.spec.containers[0].image")),
	},
	core("services"): {
		text("Type", ".spec.type"), text("Cluster-IP", ".spec.clusterIP"), text("External-IP", ".status.loadBalancer.ingress[0].ip"),
		count("Port", ".spec.ports[0].port"), text("Protocol", ".spec.ports[0].protocol"),
		wide(text("External-Name", ".status.loadBalancer.ingress[0].hostname")), wide(text("Selector", ".spec.selector")),
	},
	core("persistentvolumeclaims"): {
		text("Status", ".status.phase"), text("Volume", ".spec.volumeName"), text("Capacity", ".status.capacity.storage"),
		text("Access Modes", ".spec.accessModes"), text("StorageClass", ".spec.storageClassName"),
		wide(text("VolumeMode", ".spec.volumeMode")),
	},
	core("replicationcontrollers"): slices.Concat([]column{desired, current, ready}, containers),
	networking("ingresses"): {
		text("Class", ".spec.ingressClassName"), text("Host", ".spec.rules[0].host"), text("Address", ".status.loadBalancer.ingress[0].ip"),
		wide(text("Hostname", ".status.loadBalancer.ingress[0].hostname")),
	},
	networking("networkpolicies"): {text("Pod-Selector", ".spec.podSelector.matchLabels")},
	{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}: {
		text("Min Available", ".spec.minAvailable"), text("Max Unavailable", ".spec.maxUnavailable"),
		count("Allowed Disruptions", ".status.disruptionsAllowed"),
	},
	{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}: {
		text("Kind", ".spec.scaleTargetRef.kind"), text("Reference", ".spec.scaleTargetRef.name"),
		count("MinPods", ".spec.minReplicas"), count("MaxPods", ".spec.maxReplicas"), count("Replicas", ".status.currentReplicas"),
	},
}

func core(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: resource}
}

func apps(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource}
}

func batch(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: resource}
}

func networking(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: resource}
}

// ofBuiltIn returns the columns of a type that API servers have compiled in, or nil if it is another type.
func ofBuiltIn(resource schema.GroupVersionResource) []column {
	columns := slices.Clone(builtInColumns[resource])
	if columns == nil {
		return nil
	}
	i := slices.IndexFunc(columns, func(c column) bool { return c.Priority > 0 })
	if i < 0 {
		i = len(columns)
	}
	return slices.Insert(columns, i, age)
}
