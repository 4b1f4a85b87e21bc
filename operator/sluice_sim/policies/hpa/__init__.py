"""The Kubernetes Horizontal Pod Autoscaler (HPA), and KEDA, which feeds an HPA."""
