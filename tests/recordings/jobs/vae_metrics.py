"""A variational autoencoder; after every step scikit-learn and pandas summarise the batch.

cause: cpu.python_overhead
fixed: the metrics are computed every 50th step.
"""

import pace
import pandas as pd
import torch
from sklearn.metrics import classification_report, confusion_matrix, roc_auc_score
from torch import nn
from torch.nn import functional as F

images, labels = pace.digits()


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU())
        self.mean, self.variance = nn.Linear(1024, 16), nn.Linear(1024, 16)
        self.decoder = nn.Sequential(nn.Linear(16, 1024), nn.ReLU(), nn.Linear(1024, 64))
        self.classify = nn.Linear(16, 10)

    def forward(self, x):
        hidden = self.encoder(x)
        mean, log_variance = self.mean(hidden), self.variance(hidden)
        z = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        return self.decoder(z), mean, log_variance, self.classify(z)


def summary(logits, labels, mean):
    probabilities = logits.softmax(1).detach().numpy()
    guesses, truth = probabilities.argmax(1), labels.numpy()
    table = pd.DataFrame(mean.detach().numpy()).assign(label=truth)
    return {
        "confusion": confusion_matrix(truth, guesses, labels=range(10)),
        "report": classification_report(truth, guesses, labels=range(10), output_dict=True, zero_division=0),
        "auc": roc_auc_score(truth == 0, probabilities[:, 0]),
        "spread": table.groupby("label").std(),
    }


model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
step = 0
while True:
    order = torch.randperm(len(images))
    for begin in range(0, len(order) - 512, 512):
        x, y = images[order[begin : begin + 512]], labels[order[begin : begin + 512]]
        out, mean, log_variance, logits = model(x)
        divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(1).mean()
        loss = F.binary_cross_entropy_with_logits(out, x) + 1e-3 * divergence + F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if pace.bottleneck() or step % 50 == 0:
            metrics = summary(logits, y, mean)
        pace.step()
